"""Time-outs on the node: open, close, heartbeats, the first connection of an instance, evacuation."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import Conflict
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.model import SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from tests.unit.sessions.room import UID, Application, Room


async def test_an_instance_that_does_not_answer_is_ended_with_its_session(room: Room) -> None:
    application = room.connect()
    await room.open(open_timeout_seconds=5)
    await room.clock.run_for(4.9)
    assert room.session().state is SessionState.READINESS_CHECKING
    await room.clock.run_for(0.2)
    assert (room.states()[-1], room.session().reason) == ("Terminated", "OpenTimeout")
    assert room.session().message == "the instance did not answer OPEN_SESSION within 5 s"
    assert await application.kinds() == ["OPEN_SESSION", "CLOSE_SESSION"]
    assert room.pods.ended == [(UID, "OpenTimeout")]
    with pytest.raises(Conflict, match="pod default/web is ending"):
        await room.open("default/s2")


async def test_an_open_timeout_of_a_new_pod_leaves_it_to_the_liveness_timeout(room: Room) -> None:
    await room.open(open_timeout_seconds=5)
    await room.clock.run_for(6)
    assert room.session().message == "the instance did not connect within 5 s"
    assert room.pods.ended == []


async def test_one_slow_session_ends_the_pod_only_after_the_others(room: Room) -> None:
    application = await room.opened()
    await room.open("default/s2")
    await room.clock.run_for(11)
    assert room.session("default/s2").reason == "OpenTimeout"
    assert room.pods.ended == []
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.ended == [(UID, "CloseTimeout")]


async def test_a_late_answer_that_a_session_is_closed_saves_the_pod(room: Room) -> None:
    application = await room.opened()
    await room.open("default/s2")
    await room.clock.run_for(11)
    application.report(pb.STATE_CLOSED, session="default/s2")
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.ended == []
    assert room.pods.power[UID] is None


async def test_an_instance_that_does_not_close_its_session_never_gets_another(room: Room) -> None:
    await room.opened(close_grace_seconds=20)
    await room.sessions.close("default/s1")
    await room.clock.run_for(20 + 14)
    assert room.session().state is SessionState.TERMINATING
    await room.clock.run_for(2)
    assert room.session().reason == "CloseTimeout"
    assert room.pods.ended == [(UID, "CloseTimeout")]
    assert room.pods.power[UID] is Power.RUNNING


async def test_a_silent_session_is_flagged_and_never_closed(room: Room) -> None:
    application = await room.opened("ann")
    await room.clock.run_for(59)
    assert not room.session().is_silent
    await room.clock.run_for(2)
    assert room.session().is_silent
    known = len(room.changes)
    await room.clock.run_for(3600)
    assert (room.changes[-1].is_silent, len(room.changes)) == (True, known)
    assert (room.session().state, room.pods.power[UID]) == (SessionState.LIVE, Power.RUNNING)
    assert set(await application.kinds()) == {"PING_SESSION"}
    application.report(pb.STATE_OPEN, "ann")
    await room.settle()
    assert (room.session().is_silent, room.changes[-1].is_silent) == (False, False)
    assert room.session().heartbeat_at == room.clock.now()


async def test_an_instance_with_heartbeats_is_not_pinged(room: Room) -> None:
    """The published SDK reports every ten seconds and answers no ping of a live process."""
    application = await room.opened()
    known = len(room.changes)
    for _ in range(12):
        await room.clock.run_for(10)
        application.report(pb.STATE_OPEN)
        await room.settle()
    assert await application.kinds() == []
    assert len(room.changes) == known


async def test_a_new_instance_runs_until_its_application_has_connected(room: Room) -> None:
    room.pod_status()
    assert room.pods.power[UID] is Power.RUNNING
    room.connect()
    assert room.pods.power[UID] is None
    await room.clock.run_for(3600)
    assert room.pods.ended == []


async def test_a_new_instance_that_never_connects_is_ended(room: Room) -> None:
    room.pod_status(containers=())
    await room.clock.run_for(3600)
    room.pod_status()
    await room.clock.run_for(59)
    room.pod_status(containers=("c2",))
    assert room.pods.ended == []
    await room.clock.run_for(2)
    assert room.pods.ended == [(UID, "LivenessTimeout")]
    await room.clock.run_for(3600)
    assert len(room.pods.ended) == 1


async def evacuating(room: Room, seconds: float) -> asyncio.Task[None]:
    deadline = room.clock.monotonic() + seconds
    task = asyncio.create_task(room.sessions.evacuate(UID, deadline), name="evacuation")
    await room.settle()
    return task


async def test_an_evacuation_returns_when_all_sessions_are_closed(room: Room) -> None:
    application = await room.opened("ann")
    await room.open("default/s2")
    await application.read()
    assert room.sessions.evacuation().is_needed(UID)
    task = await evacuating(room, 10)
    assert [message.closeSession.gracePeriodSeconds for message in await application.read()] == [10, 10]
    assert room.session().state is SessionState.EVACUATING
    with pytest.raises(Conflict, match="pod default/web is ending"):
        await room.open("default/s3")
    application.report(pb.STATE_CLOSED, session="default/s2")
    await room.settle()
    assert not task.done()
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert task.done()
    assert {one.reason for one in room.sessions.all()} == {"Evacuated"}
    assert not room.sessions.evacuation().is_needed(UID)
    assert room.pods.power[UID] is Power.RUNNING  # it must not freeze while it stops


async def test_an_evacuation_ends_at_its_deadline(room: Room) -> None:
    await room.opened("ann")
    task = await evacuating(room, 10)
    await room.clock.run_for(9.9)
    assert not task.done()
    await room.clock.run_for(0.2)
    assert task.done()
    assert (room.session().reason, room.pods.ended) == ("Evacuated", [])


async def test_an_evacuation_shortens_a_close(room: Room) -> None:
    application = await room.opened()
    await room.sessions.close("default/s1")
    task = await evacuating(room, 10)
    assert [message.closeSession.gracePeriodSeconds for message in await application.read()] == [60, 10]
    await room.clock.run_for(11)
    assert task.done()


async def test_a_pod_without_sessions_is_evacuated_at_once(room: Room) -> None:
    await room.sessions.evacuate(UID, room.clock.monotonic())
    Application(room.sessions.ensure_instance(room.pods.views[UID].pod))
    await room.sessions.evacuate(UID, room.clock.monotonic())
