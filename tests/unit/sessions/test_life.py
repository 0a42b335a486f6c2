"""Life of a session: open, clients, close, time-outs, and what the pod's power state is meanwhile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, NotFound, PodUid
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.model import OpenRequest, Session, SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from tests.unit.sessions.room import UID, Room, a_report


async def test_a_session_opens_and_closes(room: Room) -> None:
    application = room.connect()
    await room.open(data=b"x")
    (message,) = await application.read()
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


async def test_clients_are_counted(room: Room) -> None:
    application = await room.opened("ann")
    application.report(pb.STATE_OPEN, "bob", "ann", "bob")
    await room.settle()
    assert [client.name for client in room.session().clients] == ["ann", "bob"]
    application.report(pb.STATE_OPEN)
    await room.settle()
    assert room.session().state is SessionState.READY
    assert room.states() == ["Starting", "ReadinessChecking", "Ready", "Live", "Ready"]


async def test_a_client_that_has_left_does_not_count(room: Room) -> None:
    application = await room.opened()
    joined, left = pb.ClientSession(clientIdentifier="ann"), pb.ClientSession(clientIdentifier="bob")
    joined.timeJoin.FromDatetime(room.clock.now())
    left.timeExit.FromDatetime(room.clock.now())
    status = pb.SessionStatus(sessionState=pb.STATE_OPEN, clientSession=[joined, left])
    application.instance.received(a_report(status))
    await room.settle()
    assert [(one.name, one.joined_at) for one in room.session().clients] == [("ann", room.clock.now())]


async def test_a_session_with_clients_is_evacuated_before_it_terminates(room: Room) -> None:
    application = await room.opened("ann")
    await room.sessions.close("default/s1", grace_seconds=7.9)
    await room.settle()
    (message,) = await application.read()
    assert message.closeSession.gracePeriodSeconds == 7
    for state, clients in ((pb.STATE_CLOSING, ["ann"]), (pb.STATE_CLOSING, []), (pb.STATE_CLOSED, [])):
        application.report(state, *clients)
        await room.settle()
    assert room.states()[-4:] == ["Live", "Evacuating", "Terminating", "Terminated"]
    assert room.session().clients == ()


async def test_an_instance_may_close_its_session_itself(room: Room) -> None:
    application = await room.opened("ann")
    application.report(pb.STATE_CLOSING, "ann")
    await room.settle()
    assert room.session().state is SessionState.TERMINATING
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.session().reason == "ClosedByInstance"


async def test_an_instance_may_refuse_a_session(room: Room) -> None:
    application = room.connect()
    await room.open()
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert (room.states()[-1], room.session().reason) == ("Terminated", "Refused")


async def test_a_fast_answer_is_not_lost(room: Room) -> None:
    """Fault B14 of the first implementation: the answer came before the record of the session."""
    application = room.connect()
    await room.sessions.open(OpenRequest(id="default/s1", pod_id="default/web"))
    application.report(pb.STATE_OPEN, "ann")
    await room.settle()
    assert room.states() == ["Starting", "ReadinessChecking", "Ready", "Live"]


async def test_a_late_report_about_an_earlier_session_of_the_name_does_not_end_the_new_one(
    room: Room,
) -> None:
    application = await room.opened()
    application.report(pb.STATE_CLOSED)
    await room.settle()
    application.stream.end()
    await room.open()
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.session().state is SessionState.STARTING


async def test_a_repeated_open_returns_the_same_session(room: Room) -> None:
    first = await room.open(data=b"x", payload=b"1")
    second = await room.open(data=b"x", payload=b"2")
    assert (second.created_at, second.payload) == (first.created_at, b"1")
    assert len(room.sessions.all()) == 1
    with pytest.raises(Conflict, match="session default/s1 exists with another spec"):
        await room.open(data=b"y")


async def test_the_name_of_an_ended_session_is_free_but_not_for_the_same_object(room: Room) -> None:
    await room.open(uid="object-1")
    await room.sessions.close("default/s1")
    await room.settle()
    assert (await room.open(uid="object-1")).is_over
    room.pods.add("u2", name="other")
    with pytest.raises(Conflict):
        await room.open(uid="object-1", pod_id="default/other")
    assert (await room.open(uid="object-2")).state is SessionState.STARTING
    assert [one.uid for one in room.sessions.all()] == ["object-2"]


async def test_a_session_needs_a_pod_that_is_not_ending(room: Room) -> None:
    with pytest.raises(NotFound, match="pod default/other is not on this node"):
        await room.open(pod_id="default/other")
    room.pods.views[UID] = replace(room.pods.views[UID], is_ending=True)
    with pytest.raises(Conflict, match="pod default/web is ending"):
        await room.open()
    assert room.sessions.all() == ()


async def test_a_close_before_the_application_connects_ends_the_session(room: Room) -> None:
    await room.open()
    await room.sessions.close("default/s1")
    await room.settle()
    assert room.states() == ["Starting", "Terminated"]
    assert await room.connect().read() == []


async def test_a_repeated_close_may_only_shorten_the_grace_period(room: Room) -> None:
    application = await room.opened()
    for grace in (30, 60, 5):
        await room.sessions.close("default/s1", grace_seconds=grace)
        await room.settle()
    assert [message.closeSession.gracePeriodSeconds for message in await application.read()] == [30, 5]
    await room.clock.run_for(5 + 15)
    assert room.session().is_over
    await room.sessions.close("default/s1")
    with pytest.raises(NotFound):
        await room.sessions.close("default/other")


async def test_ended_sessions_are_kept_for_ten_minutes(room: Room) -> None:
    await room.open()
    await room.sessions.close("default/s1")
    await room.clock.run_for(590)
    assert room.sessions.find("default/s1") is not None
    await room.clock.run_for(70)
    assert room.sessions.all() == ()


async def test_a_session_of_a_pod_without_the_annotation_needs_no_answer(room: Room) -> None:
    room.pods.add("u2", name="plain", has_sessions=False)
    await room.open(pod_id="default/plain")
    assert room.states() == ["Starting", "Ready"]
    assert room.pods.power[PodUid("u2")] is Power.RUNNING
    await room.clock.run_for(3600)
    assert not room.session().is_silent
    await room.sessions.close("default/s1")
    await room.settle()
    assert room.states() == ["Starting", "Ready", "Terminating", "Terminated"]
    assert room.pods.power[PodUid("u2")] is None
    assert room.pods.ended == []


async def test_several_sessions_share_a_pod(room: Room) -> None:
    application = await room.opened("ann")
    await room.open("default/s2")
    application.report(pb.STATE_OPEN, session="default/s2")
    await room.settle()
    assert {one.id: one.state.value for one in room.sessions.of_pod(UID)} == {
        "default/s1": "Live",
        "default/s2": "Ready",
    }
    application.report(pb.STATE_CLOSED)
    await room.settle()
    assert room.pods.power[UID] is Power.RUNNING
    application.report(pb.STATE_CLOSED, session="default/s2")
    await room.settle()
    assert room.pods.power[UID] is None


async def test_a_listener_with_a_bug_disturbs_neither_others_nor_the_session(room: Room) -> None:
    def broken(_session: Session) -> None:
        raise ValueError

    room.sessions.subscribe(broken)
    await room.opened()
