"""Restarts of the agent: sessions are loaded, compared with pods and instances, and power requests are repeated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, Unavailable
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.model import SessionState
from kubeletx.sessions.records import SESSION_TABLES
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.store import Store
from tests.unit.sessions.room import UID, LockedStore, Pods, Room, running_room

Running = Callable[[], AbstractAsyncContextManager[Room]]


@pytest.fixture
def pods() -> Pods:
    pods = Pods()
    pods.add()
    return pods


@pytest.fixture
def running(tmp_path: Path, pods: Pods) -> Running:
    """Make one life of the agent; the node's pods and its database survive it."""
    return partial(running_room, tmp_path / "state.db", pods=pods)


async def test_sessions_are_asked_of_their_instances(running: Running, pods: Pods) -> None:
    async with running() as room:
        await room.opened("ann", data=b"x", payload=b"\xff", uid="object")
        before = room.session()
        await room.open("default/s2")
    pods.power.clear()
    async with running() as room:
        assert replace(room.session(), heartbeat_at=None) == replace(before, heartbeat_at=None)
        assert pods.power == {UID: Power.RUNNING}
        application = room.connect()
        await room.settle()
        kinds = {one.sessionIdentifier.identifier: one.messageType for one in await application.read()}
        assert kinds == {"default/s1": pb.PING_SESSION, "default/s2": pb.OPEN_SESSION}
        application.report(pb.STATE_CLOSED)  # it does not know the session
        await room.settle()
        assert room.session().reason == "ClosedByInstance"
        await room.clock.run_for(11)
        assert room.session("default/s2").reason == "OpenTimeout"


async def test_a_session_about_which_the_instance_is_silent_is_flagged(running: Running) -> None:
    async with running() as room:
        await room.opened()
    async with running() as room:
        await room.clock.run_for(61)
        assert (room.session().state, room.session().is_silent) == (SessionState.READY, True)


async def test_the_answer_to_an_open_that_was_not_stored_as_sent_counts(running: Running) -> None:
    async with running() as room:
        await room.open()
    async with running() as room:
        room.sessions.ensure_instance(room.pods.views[UID].pod).received(_opened())
        await room.settle()
        assert room.session().state is SessionState.READY


def _opened() -> pb.SessionMessage:
    message = pb.SessionMessage(messageType=pb.SESSION_STATE)
    message.sessionIdentifier.identifier = "default/s1"
    message.sessionStatus.sessionState = pb.STATE_OPEN
    return message


async def test_a_close_goes_on(running: Running) -> None:
    async with running() as room:
        await room.opened(close_grace_seconds=5)
        await room.sessions.close("default/s1")
        await room.settle()
    async with running() as room:
        assert [one.messageType for one in await room.connect_and_read()] == [pb.CLOSE_SESSION]
        await room.clock.run_for(21)
        assert room.session().reason == "CloseTimeout"


async def test_ended_sessions_are_shown_for_ten_minutes_after_a_restart_too(running: Running) -> None:
    async with running() as room:
        await room.open()
        await room.sessions.close("default/s1")
        await room.settle()
    async with running() as room:
        assert room.session().is_over
        await room.clock.run_for(660)
        assert room.sessions.all() == ()
    async with running() as room:
        assert room.sessions.all() == ()


async def test_open_sessions_of_pods_that_are_gone_end(running: Running, pods: Pods) -> None:
    async with running() as room:
        application = await room.opened()
        application.stream.end()
        await room.open("default/s2")
    pods.views.clear()
    async with running() as room:
        assert (room.session().reason, room.session().message) == (
            "InstanceEnded",
            "pod default/web is gone",
        )
        assert room.session("default/s2").state is SessionState.STARTING  # its pod may still be delivered
        await room.clock.run_for(61)
        assert room.sessions.instances() == ()
        assert room.session("default/s2").is_over
        assert room.sessions.repaired == {"instances": 1}


async def test_requests_without_sessions_are_repeated(running: Running, pods: Pods) -> None:
    async with running() as room:
        room.connect()
        room.sessions.rest(UID)
    pods.power.clear()
    async with running():
        assert pods.power == {UID: Power.HIBERNATED}


async def test_a_frozen_pod_that_was_connected_stays_frozen(running: Running, pods: Pods) -> None:
    async with running() as room:
        room.connect()
    pods.power.clear()
    async with running() as room:
        room.pod_status()
        await room.clock.run_for(3600)
        assert (pods.power, pods.ended) == ({}, [])


async def test_sessions_end_if_the_containers_ended_while_the_agent_was_away(running: Running) -> None:
    async with running() as room:
        room.pod_status()
        await room.opened()
    async with running() as room:
        room.pod_status(containers=(), before=("c1",))
        room.pod_status(containers=("c2",))
        await room.settle()
        assert room.session().reason == "InstanceEnded"


async def test_sessions_stay_open_if_the_containers_ran_while_the_agent_was_away(running: Running) -> None:
    async with running() as room:
        room.pod_status()
        await room.opened()
    async with running() as room:
        room.pod_status(before=("c1",))
        room.pod_status(before=("c1",))
        await room.settle()
        assert room.session().state is SessionState.READY


@pytest.mark.parametrize(
    ("answer", "ended"),
    [("none", [(UID, "CloseTimeout")]), ("late report", []), ("new containers", [])],
)
async def test_a_pod_that_may_hold_an_ended_session_ends_with_its_last_one(
    running: Running, pods: Pods, answer: str, ended: list[tuple[PodUid, str]]
) -> None:
    async with running() as room:
        room.pod_status()
        application = await room.opened(close_grace_seconds=5)
        await room.open("default/s2")
        application.report(pb.STATE_OPEN, session="default/s2")
        await room.sessions.close("default/s1")
        await room.clock.run_for(700)
        assert room.sessions.find("default/s1") is None
        if answer == "late report":
            application.report(pb.STATE_CLOSED)
        if answer == "new containers":
            room.pod_status(containers=("c2",))
            await room.settle()
            await room.open("default/s2")
    async with running() as room:
        application = room.connect()
        await room.settle()
        application.report(pb.STATE_OPEN, session="default/s2")
        await room.sessions.close("default/s2")
        await room.settle()
        application.report(pb.STATE_CLOSED, session="default/s2")
        await room.settle()
        assert (room.session("default/s2").is_over, pods.ended) == (True, ended)


async def test_the_end_of_a_failed_instance_is_repeated(running: Running, pods: Pods) -> None:
    async with running() as room:
        await room.opened(kills_instance=True)
        await room.sessions.close("default/s1")
        await room.clock.run_for(80)
    assert pods.ended == [(UID, "SessionClosed")]
    async with running():
        assert pods.ended == [(UID, "SessionClosed")] * 2


async def test_a_pod_of_a_lost_database_may_connect_again(running: Running, tmp_path: Path) -> None:
    async with running() as room:
        await room.opened()
    for file in tmp_path.iterdir():
        file.unlink()
    async with running() as room:
        assert room.sessions.instance(UID) is None
        room.pod_status()
        application = room.connect()
        with pytest.raises(Exception, match="no session"):
            application.report(pb.STATE_OPEN)
        assert await application.kinds() == ["CLOSE_SESSION"]


async def test_a_session_that_begins_before_the_room_runs_is_not_lost(tmp_path: Path, pods: Pods) -> None:
    async with running_room(tmp_path / "state.db", pods=pods) as earlier:
        await earlier.opened()
    async with running_room(tmp_path / "state.db", pods=pods, starts=False) as room:
        await room.open("default/s1", data=b"new")
        await room.open("default/s2")
        await room.sessions.load()
        assert [one.data for one in room.sessions.all()] == [b"new", b""]
        async with room.task():
            assert len(await room.connect_and_read()) == 2


async def let_write(room: Room, can_write: bool) -> None:
    """Make the database readable only, or writable again."""
    await room.store.read(lambda database: database.exec_driver_sql(f"PRAGMA query_only = {not can_write:d}"))


async def test_changes_wait_while_the_database_cannot_be_written(tmp_path: Path, pods: Pods) -> None:
    async with running_room(tmp_path / "state.db", pods=pods) as room:
        await let_write(room, False)
        await room.opened()
        await room.settle()
        await let_write(room, True)
    async with running_room(tmp_path / "state.db", pods=pods) as room:
        assert room.session().state is SessionState.READY


async def test_an_agent_stops_while_the_database_cannot_be_written(tmp_path: Path, pods: Pods) -> None:
    async with running_room(tmp_path / "state.db", pods=pods) as room:
        await let_write(room, False)
        await room.opened()
    assert room.session().state is SessionState.READY


async def test_sessions_of_a_database_that_cannot_be_read_at_first_stay_open(
    tmp_path: Path, pods: Pods
) -> None:
    start = partial(running_room, tmp_path / "state.db", pods=pods)
    async with start() as room:
        await room.opened()
    async with start(store_type=LockedStore) as room:
        room.pod_status()
        application = room.connect()
        for state in (pb.STATE_OPEN, pb.STATE_CLOSED):
            with pytest.raises(Unavailable):
                application.report(state)
        await room.open("default/s2")
        await room.clock.run_for(60)
        assert await application.kinds() == ["OPEN_SESSION", "CLOSE_SESSION"]
        assert (room.session("default/s2").reason, pods.ended) == ("OpenTimeout", [])
        await room.unlock()
        assert await application.kinds() == ["PING_SESSION"]
        application.report(pb.STATE_OPEN, "ann")
        await room.settle()
        assert room.states() == ["Ready", "Live"]
        room.pod_status(containers=("c2",))
        await room.settle()
        assert room.session().reason == "InstanceEnded"
    async with start() as room:
        assert [one.state for one in room.sessions.all()] == ["Terminated", "Terminated"]


async def test_a_frozen_pod_of_a_database_that_cannot_be_read_at_first_stays_frozen(
    tmp_path: Path, pods: Pods
) -> None:
    start = partial(running_room, tmp_path / "state.db", pods=pods)
    async with start() as room:
        room.connect()
        room.sessions.rest(UID)
    pods.power.clear()
    async with start(store_type=LockedStore) as room:
        room.sessions.ensure_instance(pods.views[UID].pod)
        room.pod_status()
        await room.clock.run_for(100)
        assert (pods.power, pods.ended) == ({}, [])
        await room.unlock()
        await room.clock.run_for(100)
        assert (pods.power, pods.ended) == ({UID: Power.HIBERNATED}, [])
    async with start() as room:
        room.pod_status()
        await room.clock.run_for(100)
        assert (pods.power, pods.ended) == ({UID: Power.HIBERNATED}, [])


async def test_an_unreadable_row_is_left_out(running: Running, tmp_path: Path) -> None:
    async with running() as room:
        await room.opened()
        await room.open("default/s2")
    store = await Store.open(tmp_path / "state.db", [SESSION_TABLES])
    await store.write(
        lambda connection: connection.exec_driver_sql("UPDATE sessions SET session='{' WHERE id='default/s1'")
    )
    await store.close()
    async with running() as room:
        assert [one.id for one in room.sessions.all()] == ["default/s2"]


async def test_a_pod_with_the_same_name_but_another_uid_has_no_sessions(running: Running, pods: Pods) -> None:
    async with running() as room:
        await room.opened()
    pods.views.clear()
    pods.add("u9")
    async with running() as room:
        assert room.session().is_over
        assert room.sessions.of_pod(PodUid("u9")) == ()
