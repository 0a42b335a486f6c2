"""Events of the CRI and of containerd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeletx.api import EventKind, PodUid, RuntimeEvent, SandboxId, Unavailable, UnitId
from kubeletx.cri import ContainerdEvents, CriClient
from kubeletx.cri.containerd import TOPICS, filters, read_event, server_uuid
from kubeletx.cri.events import RESYNC, CriEvents, event_from_cri, knows_events, with_gap
from kubeletx.cri.ids import KnownIds
from kubeletx.cri.stubs import containerd_events_pb2 as ev
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.cri.stubs.containerd_types_pb2 import Envelope
from kubeletx.testing import FakeClock
from kubeletx_testing.cri_server import FakeCriServer

POD = PodUid("uid-1")
SANDBOX = SandboxId("sandbox-1")
UNIT = UnitId("container-1")


@pytest.fixture
def known() -> KnownIds:
    known = KnownIds()
    known.add_sandbox(SANDBOX, POD)
    known.add_unit(UNIT, SANDBOX, POD)
    return known


class Collector:
    """Takes events from a stream in a task of its own."""

    def __init__(self, stream: AsyncIterator[RuntimeEvent]) -> None:
        self.queue: asyncio.Queue[RuntimeEvent] = asyncio.Queue()
        self.task = asyncio.create_task(self._run(stream), name="collector")

    async def next(self) -> RuntimeEvent:
        async with asyncio.timeout(60):
            return await self.queue.get()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self, stream: AsyncIterator[RuntimeEvent]) -> None:
        async for event in stream:
            self.queue.put_nowait(event)


async def test_a_server_with_cri_events_is_distinguished_from_one_without(
    server: FakeCriServer, client: CriClient
) -> None:
    assert not await knows_events(client)
    server.model.unimplemented.clear()
    assert await knows_events(client)


async def test_asking_for_events_while_the_server_is_away_is_unavailable(
    server: FakeCriServer, client: CriClient
) -> None:
    await server.stop()
    with pytest.raises(Unavailable):
        await knows_events(client)


async def test_cri_events_name_pod_sandbox_and_unit(server: FakeCriServer, client: CriClient) -> None:
    server.model.unimplemented.clear()
    collector = Collector(CriEvents(client, sleep=FakeClock().sleep).events())
    await server.wait_subscribed("GetContainerEvents")
    answer = pb.ContainerEventResponse(
        container_id=UNIT, container_event_type=pb.CONTAINER_STOPPED_EVENT, created_at=5
    )
    answer.pod_sandbox_status.id = SANDBOX
    answer.pod_sandbox_status.metadata.uid = POD
    server.emit(answer)
    assert await collector.next() == RuntimeEvent(
        kind=EventKind.STOPPED, uid=POD, sandbox_id=SANDBOX, unit_id=UNIT, at_ns=5
    )
    await collector.stop()


def test_an_event_of_the_sandbox_s_own_container_has_no_unit() -> None:
    answer = pb.ContainerEventResponse(container_id=SANDBOX)
    answer.pod_sandbox_status.id = SANDBOX
    event = event_from_cri(answer)
    assert (event.kind, event.sandbox_id, event.unit_id, event.uid) == (
        EventKind.CREATED,
        SANDBOX,
        None,
        None,
    )


async def test_once_the_stream_has_settled_everything_is_looked_at(
    server: FakeCriServer, client: CriClient
) -> None:
    server.model.unimplemented.clear()
    clock = FakeClock()
    collector = Collector(CriEvents(client, sleep=clock.sleep).events())
    await server.wait_subscribed("GetContainerEvents")
    await clock.run_for(2)
    assert await collector.next() == RESYNC
    await clock.run_for(100)
    assert collector.queue.empty()
    await collector.stop()


async def test_the_gap_keeps_order_and_ends_with_the_stream() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def never(_seconds: float) -> None:
        await asyncio.Event().wait()

    async def at_once(_seconds: float) -> None:
        return

    assert [item async for item in with_gap(numbers(), never)] == [1, 2]
    items = [item async for item in with_gap(numbers(), at_once)]
    assert items.count(None) == 1
    assert [item for item in items if item is not None] == [1, 2]


async def test_containerd_is_known_by_its_identity(server: FakeCriServer, client: CriClient) -> None:
    assert await server_uuid(client) == ""
    server.uuid = "1234"
    assert await server_uuid(client) == "1234"


async def test_containerd_events_are_asked_for_by_topic_in_one_namespace(
    server: FakeCriServer, client: CriClient, known: KnownIds
) -> None:
    server.uuid = "1234"
    events = ContainerdEvents(client, known, namespace="k8s.io", sleep=FakeClock().sleep)
    collector = Collector(events.events())
    await server.wait_subscribed("Subscribe")
    assert list(server.subscriptions[0].filters) == filters("k8s.io")
    server.emit_containerd("/tasks/exit", ev.TaskExit(container_id=UNIT, id=UNIT), namespace="moby")
    server.emit_containerd("/images/create", ev.ContainerCreate(id="x"))
    server.emit_containerd("/tasks/exit", ev.TaskExit(container_id=UNIT, id="exec-1"))
    server.emit_containerd("/tasks/exit", ev.TaskExit(container_id=UNIT, id=UNIT))
    event = await collector.next()
    assert (event.kind, event.uid, event.sandbox_id, event.unit_id) == (
        EventKind.STOPPED,
        POD,
        SANDBOX,
        UNIT,
    )
    assert event.at_ns > 0
    assert collector.queue.empty()
    await collector.stop()


async def test_a_broken_connection_ends_the_events_with_unavailable(
    server: FakeCriServer, client: CriClient, known: KnownIds
) -> None:
    server.uuid = "1234"
    events = ContainerdEvents(client, known, namespace="k8s.io", sleep=FakeClock().sleep)
    collector = Collector(events.events())
    await server.wait_subscribed("Subscribe")
    await server.stop()
    with pytest.raises(Unavailable):
        await collector.task


def envelope(topic: str, message: Any) -> Envelope:
    made = Envelope(topic=topic, namespace="k8s.io")
    made.event.value = message.SerializeToString()
    return made


@pytest.mark.parametrize(
    ("topic", "message", "kind"),
    [
        ("/tasks/start", ev.TaskStart(container_id=UNIT), EventKind.STARTED),
        ("/tasks/exit", ev.TaskExit(container_id=UNIT), EventKind.STOPPED),
        ("/tasks/oom", ev.TaskOOM(container_id=UNIT), EventKind.OOM),
        ("/tasks/paused", ev.TaskPaused(container_id=UNIT), EventKind.CHANGED),
        ("/tasks/resumed", ev.TaskResumed(container_id=UNIT), EventKind.CHANGED),
        ("/containers/create", ev.ContainerCreate(id=UNIT), EventKind.CREATED),
        ("/containers/delete", ev.ContainerDelete(id=UNIT), EventKind.DELETED),
    ],
)
def test_each_topic_has_its_kind(known: KnownIds, topic: str, message: Any, kind: EventKind) -> None:
    event = read_event(envelope(topic, message), known)
    assert event is not None
    assert (event.kind, event.uid, event.unit_id) == (kind, POD, UNIT)
    assert topic in TOPICS


def test_an_event_of_a_sandbox_s_own_task_has_no_unit(known: KnownIds) -> None:
    event = read_event(envelope("/tasks/exit", ev.TaskExit(container_id=SANDBOX)), known)
    assert event is not None
    assert (event.uid, event.sandbox_id, event.unit_id) == (POD, SANDBOX, None)


def test_an_id_that_was_never_seen_is_left_to_the_host(known: KnownIds) -> None:
    event = read_event(envelope("/tasks/exit", ev.TaskExit(container_id="new")), known)
    assert event is not None
    assert (event.uid, event.sandbox_id, event.unit_id) == (None, None, "new")


def test_an_event_that_cannot_be_read_asks_for_a_look_at_everything(known: KnownIds) -> None:
    broken = Envelope(topic="/tasks/exit")
    broken.event.value = b"\xff\xff\xff"
    assert read_event(broken, known) == RESYNC
    assert read_event(Envelope(topic="/other"), known) is None


def test_ids_are_forgotten_with_their_sandbox(known: KnownIds) -> None:
    known.remove_sandbox(SANDBOX)
    assert known.find(SANDBOX) is None
    assert known.find(UNIT) is None
    known.remove_unit(UNIT)
    known.add_unit(UNIT, SANDBOX, POD)
    known.clear()
    assert known.find(UNIT) is None


def test_what_others_removed_is_forgotten_when_its_end_is_reported() -> None:
    known = KnownIds()
    before = KnownIds()
    for number in range(100):
        known.add_unit(
            UnitId(f"c{number}"), SandboxId(f"s{number}"), PodUid("")
        )  # another agent's, listed once
        for some_id in (f"c{number}", f"s{number}"):
            event = read_event(envelope("/containers/delete", ev.ContainerDelete(id=some_id)), known)
            assert event is not None
            assert event.kind is EventKind.DELETED
    assert vars(known) == vars(before)


def test_ids_whose_end_no_one_reports_are_bounded() -> None:
    known = KnownIds(limit=10)
    for number in range(25):
        known.add_unit(UnitId(f"c{number}"), SandboxId("s"), PodUid("u"))
    assert known.find("c24") is not None
    assert sum(known.find(f"c{number}") is not None for number in range(25)) <= 10


def test_a_unit_without_a_uid_takes_its_sandbox_s(known: KnownIds) -> None:
    known.add_unit(UnitId("bare"), SANDBOX, PodUid(""))
    owner = known.find("bare")
    assert owner is not None
    assert owner.uid == POD
