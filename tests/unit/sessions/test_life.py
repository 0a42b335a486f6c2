"""Life of a session: open, clients, close, time-outs, and what the pod's power state is meanwhile."""

from __future__ import annotations

from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.model import SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from tests.unit.sessions.room import UID, Room


async def test_a_session_opens_and_closes(room: Room) -> None:
    application = room.connect()
    await room.open(data=b"x")
    (message,) = await application.read()
    assert message.messageIdentifier == "1"
    assert message.sessionIdentifier.identifier == "default/s1"
    assert message.openSession.sessionConfiguration.sessionData == b"x"

    application.report(pb.STATE_OPEN)
    await room.settle()
    assert room.session().ready_at == room.clock.now()
    assert [session.id for session in room.sessions.of_pod(UID)] == ["default/s1"]

    await room.sessions.close("default/s1")
    await room.settle()
    (message,) = await application.read()
    assert message.closeSession.gracePeriodSeconds == 60
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.states() == ["Starting", "ReadinessChecking", "Ready", "Terminating", "Terminated"]
    assert (room.session().reason, room.session().closed_at) == ("", room.clock.now())
    assert room.sessions.of_pod(UID) == ()


async def test_a_session_waits_for_an_application_that_is_not_connected(room: Room) -> None:
    await room.open()
    assert room.session().state is SessionState.STARTING
    application = room.connect()
    await room.settle()
    assert await application.kinds() == ["OPEN_SESSION"]
    assert room.session().state is SessionState.READINESS_CHECKING


async def test_the_pod_runs_while_a_session_is_open(room: Room) -> None:
    application = await room.opened()
    assert room.pods.power[UID] is Power.RUNNING
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.power[UID] is None
    assert room.session().reason == "ClosedByInstance"
