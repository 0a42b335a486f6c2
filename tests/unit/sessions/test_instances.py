"""Connections of instances, foreign and hostile messages, the end of pods, and requests of power states."""

from __future__ import annotations

import pytest

from kubeletx.api import Conflict, InvalidConfig, NotFound, PermissionDenied, PodUid
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.instance import Instance
from kubeletx.sessions.model import OpenRequest, SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from tests.unit.sessions.room import UID, Room, a_report

OTHER = PodUid("u2")


async def test_a_new_connection_replaces_the_first_and_gets_what_was_not_answered(room: Room) -> None:
    application = await room.opened()
    await room.open("default/s2")
    again = room.connect()
    await room.settle()
    assert application.stream.is_ended
    found = {message.sessionIdentifier.identifier: message.messageType for message in await again.read()}
    assert found == {"default/s1": pb.PING_SESSION, "default/s2": pb.OPEN_SESSION}
    await room.sessions.close("default/s1")
    await room.clock.run_for(10)
    (message,) = [one for one in await room.connect_and_read() if one.messageType == pb.CLOSE_SESSION]
    assert message.closeSession.gracePeriodSeconds == 50


async def test_messages_to_a_closed_connection_are_kept_for_the_next(room: Room) -> None:
    """Fault B13 of the first implementation: a send to a closed connection ended the agent."""
    application = room.connect()
    application.stream.end()
    await room.open()
    assert room.session().state is SessionState.STARTING
    assert [one.messageType for one in await room.connect_and_read()] == [pb.OPEN_SESSION]


async def test_an_instance_that_does_not_read_hurts_only_itself(room: Room) -> None:
    room.pods.add(OTHER, name="other")
    deaf, good = await room.opened(), room.connect(OTHER)
    await room.clock.run_for(402 * 20)
    assert deaf.stream.is_ended
    await room.open("default/s2", pod_id="default/other")
    assert await good.kinds() == ["OPEN_SESSION"]
    assert room.session().is_silent


async def test_a_flood_of_reports_takes_no_memory(room: Room) -> None:
    application = await room.opened()
    for number in range(10_000):
        application.report(pb.STATE_OPEN, f"client-{number}")
    await room.settle()
    assert [client.name for client in room.session().clients] == ["client-9999"]
    assert len([one for one in room.changes if one.clients]) == 1


async def test_a_pod_speaks_only_for_its_own_sessions(room: Room) -> None:
    room.pods.add(OTHER, name="other")
    application, other = await room.opened(), room.connect(OTHER)
    with pytest.raises(PermissionDenied, match="pod default/other has no session 'default/s1'"):
        other.report(pb.STATE_CLOSED)
    with pytest.raises(PermissionDenied, match="must not report for pod 'default/web'"):
        other.report(pb.STATE_CLOSED, pod="default/web")
    await room.settle()
    assert room.session().state is SessionState.READY
    application.report(pb.STATE_CLOSED, pod="default/web")
    await room.settle()
    assert room.session().is_over


async def test_reports_of_closed_sessions_are_accepted_forever(room: Room) -> None:
    """The published SDK repeats them."""
    application = await room.opened()
    application.report(pb.STATE_CLOSED)
    await room.clock.run_for(700)
    assert room.sessions.all() == ()
    application.report(pb.STATE_CLOSED)
    assert await application.read() == []


async def test_a_session_that_only_the_application_has_is_closed(room: Room) -> None:
    """An agent that was killed within milliseconds after an open has no row of the session."""
    application = room.connect()
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            application.report(pb.STATE_OPEN, session="default/lost")
    (message,) = await application.read()
    assert message.sessionIdentifier.identifier == "default/lost"
    assert message.messageType == pb.CLOSE_SESSION


STATUS = pb.SessionStatus(sessionState=pb.STATE_OPEN)
UNKNOWN_STATE = pb.SessionStatus.FromString(b"\x08\x4d")  # field 1: 77
NAMELESS = pb.SessionStatus(sessionState=pb.STATE_OPEN, clientSession=[pb.ClientSession()])
CROWD = pb.SessionStatus(
    sessionState=pb.STATE_OPEN,
    clientSession=[pb.ClientSession(clientIdentifier=str(number)) for number in range(1001)],
)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (pb.SessionMessage(), "messageType: type 0 with body None; send SESSION_STATE"),
        (pb.SessionMessage(messageType=pb.SESSION_STATE), "type 104 with body None"),
        (pb.SessionMessage(sessionStatus=STATUS), "type 0 with body sessionStatus"),
        (a_report(UNKNOWN_STATE), "sessionStatus.sessionState: unknown value 77"),
        (a_report(NAMELESS), "clientIdentifier: 0 characters"),
        (a_report(CROWD), "clientSession: 1001 clients; report at most 1000"),
    ],
)
async def test_an_invalid_message_is_refused_and_changes_nothing(
    room: Room, message: pb.SessionMessage, problem: str
) -> None:
    application = await room.opened()
    with pytest.raises(InvalidConfig, match=problem):
        application.instance.received(message)
    await room.settle()
    assert (room.session().state, room.session().clients) == (SessionState.READY, ())


async def test_a_time_outside_the_calendar_is_left_out(room: Room) -> None:
    application = await room.opened()
    client = pb.ClientSession(clientIdentifier="ann")
    client.timeJoin.seconds = 1 << 62
    application.instance.received(
        a_report(pb.SessionStatus(sessionState=pb.STATE_OPEN, clientSession=[client]))
    )
    await room.settle()
    assert room.session().clients[0].joined_at is None


# --- pods -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_sessions_end_with_their_pod(room: Room, phase: str) -> None:
    await room.opened("ann")
    room.pod_status(phase, containers=())
    await room.settle()
    assert (room.session().reason, room.session().message) == (
        "InstanceEnded",
        f"pod default/web has ended: {phase}",
    )


async def test_a_pod_that_is_gone_takes_its_sessions_and_its_instance(room: Room) -> None:
    gone: list[Instance] = []
    application = await room.opened("ann")
    room.sessions.subscribe_instances(gone.append)
    room.pod_gone()
    await room.settle()
    assert (room.session().reason, application.stream.is_ended) == ("InstanceEnded", True)
    assert [(one.uid, one.is_gone) for one in gone] == [(UID, True)]
    assert room.sessions.instances() == ()


async def test_open_sessions_end_when_the_containers_are_replaced(room: Room) -> None:
    await room.opened()
    await room.open("default/s2")
    room.pod_status(containers=("c1", "sidecar"))
    room.pod_status(containers=("sidecar",))
    await room.settle()
    assert room.session().state is SessionState.READY
    room.pod_status(containers=("c2",))
    await room.settle()
    assert room.session().reason == "InstanceEnded"
    assert [one.sessionIdentifier.identifier for one in await room.connect_and_read()] == ["default/s2"]


async def test_restarted_containers_hold_nothing_and_connect_again(room: Room) -> None:
    application = await room.opened()
    await room.open("default/s2")
    room.pod_status()
    await room.clock.run_for(11)
    assert room.session("default/s2").reason == "OpenTimeout"
    application.stream.end()
    room.pod_status(containers=())
    await room.settle()
    assert (room.session().reason, room.pods.ended) == ("InstanceEnded", [])
    room.pod_status(containers=("c2",))
    assert room.pods.power[UID] is Power.RUNNING
    await room.clock.run_for(61)
    assert room.pods.ended == [(UID, "LivenessTimeout")]


async def test_a_session_may_end_its_pod(room: Room) -> None:
    application = await room.opened(kills_instance=True)
    await room.open("default/s2")
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.ended == [(UID, "SessionClosed")]
    assert room.session("default/s2").state is SessionState.READINESS_CHECKING  # the pod's end evacuates it


async def test_a_pod_has_a_limited_number_of_sessions(room: Room) -> None:
    for number in range(100):
        await room.sessions.open(OpenRequest(id=f"default/s{number}", pod_id="default/web"))
    with pytest.raises(Conflict, match="pod default/web has 100 sessions"):
        await room.open("default/more")
    application = room.connect()
    await room.settle()
    assert len(await application.read()) == 100


# --- requests without sessions ----------------------------------------------------------------------


async def test_a_request_to_rest_waits_for_the_last_session(room: Room) -> None:
    application = await room.opened()
    room.sessions.rest(UID)
    assert room.pods.power[UID] is Power.RUNNING
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.power[UID] is Power.HIBERNATED
    await room.open("default/s2")
    assert room.pods.power[UID] is Power.RUNNING


async def test_a_woken_pod_runs_until_it_is_asked_to_rest(room: Room) -> None:
    application = await room.opened()
    room.sessions.wake(UID)
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.power[UID] is Power.RUNNING
    room.sessions.rest(UID, Power.STANDBY)
    assert room.pods.power[UID] is Power.STANDBY


async def test_requests_need_a_pod_and_a_rest_state(room: Room) -> None:
    with pytest.raises(NotFound):
        room.sessions.wake(PodUid("other"))
    with pytest.raises(InvalidConfig):
        room.sessions.rest(UID, Power.OFF)
