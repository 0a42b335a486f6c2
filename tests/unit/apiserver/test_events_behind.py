"""Events on their way to an API server: behind the statuses, none twice, none lost for a little trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import SystemClock
from kubeletx.apiserver.events import MOST_SECONDS, QUIET_SECONDS, WAITING, EventReporter
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.apiserver.faults import Rule
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections

GUARD_SECONDS = 60
NODE = "teller"


def event(name: str, *, type: str = "Normal", count: int = 1, kind: str = "Pod", about: str = "a") -> Event:
    """As the recorder of a node gives it."""
    return Event(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        involved_object=ObjectReference(kind=kind, namespace="default", name=about),
        type=type,
        reason="Tested",
        count=count,
    )


class Node:
    """A reporter at work against the double; its clock stands still."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api = api
        self.clock = FakeClock()
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NODE)), clock=SystemClock())
        self.busy_at = 0.0
        self._recorded: asyncio.Queue[Event] = asyncio.Queue()
        self.reporter = EventReporter(
            self.client, self._watch, clock=self.clock, busy_at=lambda: self.busy_at
        )
        self.task = asyncio.create_task(self.reporter.run())

    async def _watch(self) -> AsyncIterator[Event]:
        while True:
            yield await self._recorded.get()

    async def record(self, *events: Event) -> None:
        """Let the reporter hear of them."""
        for one in events:
            self._recorded.put_nowait(one)
        await self.clock.settle()

    async def pass_seconds(self, seconds: float) -> None:
        """On the reporter's clock."""
        await self.clock.run_for(seconds)

    def reported(self) -> dict[str, dict[str, Any]]:
        """The API server's events by name."""
        return {
            one["metadata"]["name"]: one
            for one in self.api.admin.list("events", namespace="default")["items"]
        }

    def writes(self) -> list[str]:
        """What the node asked, in order: method and the event's name, where the path has it."""
        asked = self.api.requests.all(user=f"system:node:{NODE}")
        return [f"{one.method} {one.path.rpartition('/')[2]}" for one in asked]

    async def stop(self) -> None:
        """As at the end of the agent."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def node(api: ApiServerDouble) -> AsyncIterator[Node]:
    one = Node(api)
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            yield one
    finally:
        await one.stop()
        await one.client.close()
        await until(lambda: not connections(api))  # TLS says good-bye first


async def test_an_event_waits_for_a_quiet_second(node: Node) -> None:
    await node.record(event("one"))
    await node.pass_seconds(QUIET_SECONDS - 0.1)
    await node.record(event("two"))
    await node.pass_seconds(QUIET_SECONDS - 0.1)
    node.busy_at = node.clock.monotonic()
    await node.pass_seconds(QUIET_SECONDS - 0.1)
    assert node.writes() == []
    await node.pass_seconds(0.2)
    await until(lambda: node.reported().keys() == {"one", "two"})


async def test_where_it_is_never_quiet_an_event_waits_no_longer_than_ten_seconds(node: Node) -> None:
    await node.record(event("old"))
    for _ in range(19):
        await node.pass_seconds(MOST_SECONDS / 20)
        node.busy_at = node.clock.monotonic()
    await node.record(event("young"))
    assert node.writes() == []
    await node.pass_seconds(MOST_SECONDS / 20)
    await until(lambda: node.reported().keys() == {"old"})
    assert node.writes() == ["POST events"]


async def test_a_warning_does_not_wait(node: Node) -> None:
    await node.record(event("usual"), event("bad", type="Warning"))
    await until(lambda: node.reported().keys() == {"bad"})
    await node.pass_seconds(QUIET_SECONDS)
    await until(lambda: node.reported().keys() == {"bad", "usual"})


async def test_an_event_that_is_counted_up_while_it_waits_is_sent_once(node: Node) -> None:
    await node.record(*(event("one", count=count) for count in range(1, 6)))
    await node.pass_seconds(QUIET_SECONDS)
    await until(lambda: node.reported().keys() == {"one"})
    assert node.reported()["one"]["count"] == 5
    await node.record(event("one", count=6))
    await node.pass_seconds(QUIET_SECONDS)
    await until(lambda: node.reported()["one"]["count"] == 6)
    assert node.writes() == ["POST events", "PATCH one"]


async def test_an_event_that_the_api_server_forgot_is_made_again(node: Node) -> None:
    await node.record(event("one", type="Warning"))
    await until(lambda: node.reported().keys() == {"one"})
    node.api.admin.delete("events", "one", namespace="default")
    await node.record(event("one", type="Warning", count=2))
    await until(lambda: node.reported().keys() == {"one"})
    assert node.reported()["one"]["count"] == 2


async def test_trouble_on_the_way_is_made_up_for_and_what_is_refused_holds_nothing_up(node: Node) -> None:
    node.api.faults.add(Rule(code=503, times=1, methods=("POST",)))
    node.api.faults.add(Rule(drops=True, times=1, methods=("POST",)))
    refused = replace(
        event("refused", type="Warning"), metadata=ObjectMeta(name="refused", namespace="no-such")
    )
    await node.record(event("first", type="Warning"), refused, event("last", type="Warning"))
    await until(lambda: node.reported().keys() == {"first", "last"})
    assert node.reporter.dropped == 1


async def test_of_more_than_fits_the_oldest_are_dropped_and_counted(node: Node) -> None:
    await node.record(*(event(f"e{number}", about=f"a{number}") for number in range(WAITING + 2)))
    await until(lambda: node.reporter.dropped)
    assert node.reporter.dropped == 2
    await node.pass_seconds(QUIET_SECONDS)
    await until(lambda: "e3" in node.reported())
    assert not {"e0", "e1"} & node.reported().keys()


async def test_objects_that_the_cluster_cannot_know_are_not_told(node: Node) -> None:
    await node.record(
        event("ours", kind="Runtime", type="Warning"), event("theirs", kind="Node", type="Warning")
    )
    await until(lambda: node.reported().keys() == {"theirs"})


async def test_what_waits_is_sent_when_the_agent_ends(node: Node) -> None:
    await node.record(event("one"), event("two"))
    await node.stop()
    assert node.reported().keys() == {"one", "two"}


async def test_an_agent_ends_at_once_when_the_api_server_is_away(node: Node) -> None:
    node.api.faults.add(Rule(drops=True, methods=("POST",)))
    await node.record(event("one", type="Warning"))
    await until(lambda: node.client.problem)
    await node.record(event("two"))
    await node.stop()
    assert node.reported() == {}
