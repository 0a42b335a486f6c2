"""A session with the name of an earlier one: reports about the earlier one do not reach it."""

from __future__ import annotations

from kubeletx.sessions.model import SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from tests.unit.sessions.room import Application, Room


async def _opening(application: Application) -> str:
    """Identifier of the OPEN_SESSION that waits."""
    (message,) = await application.read()
    assert message.messageType == pb.OPEN_SESSION
    return message.messageIdentifier


async def test_a_late_closed_of_an_earlier_session_is_ignored(room: Room) -> None:
    application = room.connect()
    await room.open()
    first = await _opening(application)
    application.report(pb.STATE_OPEN, identifier=first)
    application.report(pb.STATE_CLOSED, identifier=first)
    await room.settle()
    assert room.session().state is SessionState.TERMINATED
    room.clock.advance(0.5)
    await room.open()
    second = await _opening(application)
    assert second != first
    application.report(pb.STATE_OPEN, identifier=second)
    application.report(pb.STATE_CLOSED, identifier=first)
    await room.settle()
    assert room.session().state is SessionState.READY
    application.report(pb.STATE_CLOSED, identifier="an identifier of the application's own")
    await room.settle()
    assert room.session().state is SessionState.TERMINATED


async def test_a_repeated_open_has_the_same_identifier(room: Room) -> None:
    application = room.connect()
    await room.open()
    first = await _opening(application)
    again = room.connect()
    await room.settle()
    assert await _opening(again) == first
