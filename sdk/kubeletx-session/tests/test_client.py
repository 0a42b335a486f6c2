"""The asyncio client against a real server: commands, reports, reconnects, names that are used again."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import grpc
import pytest
from kubeletx_session import AsyncSessionClient, Session, SessionState
from kubeletx_session.client import pause_seconds
from kubeletx_session.stubs import session_service_pb2 as pb

from kubeletx_testing.waiting import until

OPEN, CLOSED, CLOSING, INITIALIZING = (
    pb.STATE_OPEN,
    pb.STATE_CLOSED,
    pb.STATE_CLOSING,
    pb.STATE_INITIALIZING,
)


class App:
    """An application that records its calls. A test holds calls up by clearing `opens` and `closes`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.sessions: list[Session] = []
        self.opens, self.closes = asyncio.Event(), asyncio.Event()
        self.opens.set()
        self.closes.set()
        self.failure: Exception | None = None

    async def on_open(self, session: Session) -> None:
        self.sessions.append(session)
        self.calls.append(("open", session.id, session.data))
        if self.failure is not None:
            raise self.failure
        await self.opens.wait()

    async def on_close(self, session: Session, grace_seconds: float) -> None:
        self.calls.append(("close", session.id, session.data))
        await self.closes.wait()
        self.calls.append(("closed", session.id, session.data))

    def client(self, service: Any, **settings: Any) -> AsyncSessionClient:
        return AsyncSessionClient(self.on_open, self.on_close, settings=service.settings(**settings))


@pytest.fixture
async def app() -> App:
    return App()


async def test_a_session_is_ready_when_on_open_returns_and_closed_when_on_close_does(
    service: Any, app: App
) -> None:
    app.opens.clear()
    app.closes.clear()
    async with app.client(service) as client:
        message_id = await service.open("default/s", b"data")
        await until(lambda: app.calls)
        await service.ping("default/s")
        await service.reported("default/s", INITIALIZING)
        app.opens.set()
        await service.reported("default/s", OPEN)
        assert client.sessions["default/s"].state is SessionState.OPEN
        await service.close("default/s")
        await service.reported("default/s", CLOSING)
        app.closes.set()
        await service.reported("default/s", CLOSED)
        await until(lambda: not client.sessions)
    assert app.calls == [(what, "default/s", b"data") for what in ("open", "close", "closed")]
    assert {message.messageIdentifier for message in service.of("default/s")} == {message_id}
    assert {message.sessionIdentifier.podId for message in service.received} == {"default/web"}
    assert service.peers == ["uid-1"]


async def test_clients_are_counted_and_those_that_left_are_reported_once(service: Any, app: App) -> None:
    async with app.client(service):
        await service.open("s")
        await service.reported("s", OPEN)
        (session,) = app.sessions
        session.join("ann")
        session.join("ann")
        with session.client("bob"):
            await service.reports("s", lambda report: _clients(report) == {"ann": False, "bob": False})
            assert [client.id for client in session.clients] == ["ann", "bob"]
        await service.reports("s", lambda report: _clients(report) == {"ann": False, "bob": True})
        session.leave("nobody")
        session.join("cat")
        await service.reports("s", lambda report: _clients(report) == {"ann": False, "cat": False})
        await service.close("s")
        await service.reported("s", CLOSED)
    assert _clients(service.of("s")[-1]) == {"ann": True, "cat": True}
    session.join("dan")
    assert session.clients == ()


def _clients(message: pb.SessionMessage) -> dict[str, bool]:
    """Clients of a report, and whether they have left."""
    return {
        client.clientIdentifier: client.HasField("timeExit") for client in message.sessionStatus.clientSession
    }


async def test_every_session_is_reported_at_the_interval_of_heartbeats(service: Any, app: App) -> None:
    async with app.client(service, heartbeat_seconds=0.01):
        await service.open("a")
        await service.open("b")
        await until(lambda: all(len(list(filter(_is_open, service.of(id)))) >= 3 for id in ("a", "b")))


def _is_open(message: pb.SessionMessage) -> bool:
    return message.sessionStatus.sessionState == OPEN


async def test_a_ping_is_answered_and_an_unknown_session_is_closed(service: Any, app: App) -> None:
    async with app.client(service) as client:
        await service.ping("gone")
        await service.reported("gone", CLOSED)
        await service.close("gone too")
        await service.reported("gone too", CLOSED)
        await until(lambda: not client.sessions)
    assert app.calls == []


async def test_closed_is_reported_once_and_again_when_a_restarted_node_asks(service: Any, app: App) -> None:
    async with app.client(service) as client:
        await service.open("s")
        await service.reported("s", OPEN)
        await service.close("s")
        await service.reported("s", CLOSED)
        await until(lambda: not client.sessions)
        assert len([m for m in service.of("s") if m.sessionStatus.sessionState == CLOSED]) == 1
        await service.stop()
        service.received.clear()
        await service.start()
        await service.ping("s")
        await service.reported("s", CLOSED)


async def test_open_sessions_are_reported_after_a_restart_of_the_node_and_not_opened_again(
    service: Any, app: App
) -> None:
    async with app.client(service) as client:
        message_id = await service.open("s", b"1")
        await service.reported("s", OPEN)
        await service.stop()
        await until(lambda: not client.is_connected)
        app.sessions[0].join("ann")
        service.received.clear()
        await service.start()
        await service.reports("s", lambda report: _is_open(report) and _clients(report) == {"ann": False})
        await service.open("s", b"1", message_id)  # its answer was lost, so it is repeated
        await service.ping("s")
        await until(lambda: len(service.of("s")) >= 2)
    assert [call for call in app.calls if call[0] == "open"] == [("open", "s", b"1")]


async def test_a_closed_that_was_not_delivered_comes_after_the_reconnect(service: Any, app: App) -> None:
    async with app.client(service) as client:
        await service.open("s")
        await service.reported("s", OPEN)
        await service.stop()
        await until(lambda: not client.is_connected)
        app.sessions[0].close()
        await until(lambda: ("closed", "s", b"") in app.calls)
        service.received.clear()
        await service.start()
        await service.reported("s", CLOSED)
        assert service.states("s") == [CLOSED]
        await until(lambda: not client.sessions)


async def test_a_late_closed_does_not_end_the_next_session_of_the_name(service: Any, app: App) -> None:
    """The node saw the first CLOSED, but its answer was lost; so it is repeated until the next session opens."""
    async with app.client(service):
        await service.open("s", b"1")
        await service.reported("s", OPEN)
        service.loses_answers = True
        await service.close("s")
        await service.reported("s", CLOSED)
        second = await service.open("s", b"2")
        await until(lambda: app.sessions[-1].data == b"2")
        service.loses_answers = False
        await service.reports("s", lambda m: m.messageIdentifier == second and _is_open(m))
        await service.ping("s")
    after = [m.messageIdentifier for m in service.of("s")]
    assert set(after[after.index(second) :]) == {second}
    assert [call[0] for call in app.calls] == ["open", "close", "closed", "open", "close", "closed"]


async def test_the_next_session_of_a_name_opens_after_on_close_of_the_first(service: Any, app: App) -> None:
    """The node gave up waiting for the first session's end."""
    app.closes.clear()
    async with app.client(service):
        await service.open("s", b"1")
        await service.reported("s", OPEN)
        await service.close("s")
        await until(lambda: ("close", "s", b"1") in app.calls)
        second = await service.open("s", b"2")
        await service.ping("s")
        await service.reports("s", lambda m: m.messageIdentifier == second)
        assert [call[0] for call in app.calls] == ["open", "close"]
        app.closes.set()
        await service.reports("s", lambda m: m.messageIdentifier == second and _is_open(m))
    after = [m.messageIdentifier for m in service.of("s")]
    assert set(after[after.index(second) :]) == {second}


async def test_another_open_of_the_name_replaces_a_session_whose_end_was_missed(
    service: Any, app: App
) -> None:
    """The instance was frozen when its first session was closed, so CLOSE_SESSION never arrived."""
    async with app.client(service):
        await service.open("s", b"1")
        await service.reported("s", OPEN)
        second = await service.open("s", b"2")
        await service.reports("s", lambda m: m.messageIdentifier == second and _is_open(m))
        assert [call[0] for call in app.calls] == ["open", "close", "closed", "open"]
        assert app.sessions[0].state is SessionState.CLOSED


async def test_a_failing_on_open_closes_only_its_session(service: Any, app: App) -> None:
    async with app.client(service):
        app.failure = RuntimeError("no room")
        await service.open("bad")
        await service.reported("bad", CLOSED)
        app.failure = None
        await service.open("good")
        await service.reported("good", OPEN)
    assert ("close", "bad", b"") not in app.calls


async def test_on_close_is_cancelled_at_the_end_of_the_grace_period(service: Any, app: App) -> None:
    app.closes.clear()
    async with app.client(service):
        await service.open("s")
        await service.reported("s", OPEN)
        await service.close("s", 0)
        await service.reported("s", CLOSED)
    assert [call[0] for call in app.calls] == ["open", "close"]


async def test_a_shorter_grace_period_replaces_a_longer_one(service: Any, app: App) -> None:
    app.closes.clear()
    async with app.client(service):
        await service.open("s")
        await service.reported("s", OPEN)
        await service.close("s", 3600)
        await service.reported("s", CLOSING)
        await service.close("s", 0)
        await service.reported("s", CLOSED)


async def test_a_close_during_on_open_waits_for_it(service: Any, app: App) -> None:
    app.opens.clear()
    async with app.client(service):
        await service.open("s")
        await until(lambda: app.calls)
        await service.close("s")
        await service.reported("s", CLOSING)
        app.opens.set()
        await service.reported("s", CLOSED)
    assert [call[0] for call in app.calls] == ["open", "close", "closed"]
    assert OPEN not in service.states("s")


async def test_a_session_above_the_limit_is_refused(service: Any, app: App) -> None:
    async with app.client(service, most_sessions=1):
        await service.open("a")
        await service.reported("a", OPEN)
        await service.open("b")
        await service.reported("b", CLOSED)
        assert service.states("a") == [OPEN]
    assert [call[1] for call in app.calls if call[0] == "open"] == ["a"]


async def test_a_refused_report_is_not_repeated_and_an_overloaded_node_is_asked_again(
    service: Any, app: App
) -> None:
    async with app.client(service):
        service.refusals = [grpc.StatusCode.PERMISSION_DENIED]
        await service.open("a")
        await until(lambda: not service.refusals)
        service.refusals = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
        await service.open("b")
        await service.reported("b", OPEN)
        assert service.of("a") == []


async def test_data_may_change_and_unknown_messages_are_ignored(service: Any, app: App) -> None:
    async with app.client(service):
        await service.open("s", b"1")
        await service.reported("s", OPEN)
        identifier = pb.SessionIdentifier(identifier="s")
        await service.send(pb.SessionMessage(sessionIdentifier=identifier))
        await service.send(
            pb.SessionMessage(
                sessionIdentifier=identifier,
                sessionConfiguration=pb.SessionConfiguration(sessionData=b"2"),
            )
        )
        await until(lambda: app.sessions[0].data == b"2")


async def test_sigterm_closes_sessions_and_reports_that(service: Any, app: App) -> None:
    client = app.client(service)
    running = asyncio.create_task(client.run(), name="run")
    for id in ("a", "b"):
        await service.open(id)
        await service.reported(id, OPEN)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert [service.states(id)[-1] for id in ("a", "b")] == [CLOSED, CLOSED]
    assert [call[0] for call in app.calls].count("closed") == 2


async def test_a_session_that_opens_during_the_shutdown_is_refused(service: Any, app: App) -> None:
    app.closes.clear()
    client = app.client(service)
    await client.start()
    await service.open("a")
    await service.reported("a", OPEN)
    closing = asyncio.create_task(client.close(), name="close")
    await service.reported("a", CLOSING)
    await service.open("b")
    await service.reported("b", CLOSED)
    app.closes.set()
    await closing
    assert service.states("a")[-1] == CLOSED


async def test_the_shutdown_ends_without_the_node(service: Any, app: App) -> None:
    client = app.client(service, shutdown_seconds=0.0, call_seconds=0.05)
    await client.start()
    await service.open("s")
    await service.reported("s", OPEN)
    await service.stop()
    await client.close()
    assert ("close", "s", b"") in app.calls


async def test_a_certificate_is_read_again_for_each_connection(service: Any, app: App) -> None:
    async with app.client(service):
        await service.connected()
        await service.stop()
        service.give_certificate("uid-2")
        await service.start()
        await service.connected()
    assert service.peers == ["uid-1", "uid-2"]


async def test_a_server_of_another_authority_gets_no_report(service: Any, app: App) -> None:
    other = type(service.authority)()
    (service.directory / "ca.crt").write_bytes(other.pem)
    async with app.client(service) as client:
        await until(lambda: not client.is_connected)
        service.give_certificate("uid-1")
        await service.connected()
    assert service.peers == ["uid-1"]


async def test_missing_files_are_waited_for(service: Any, app: App, caplog: Any) -> None:
    (service.directory / "tls.key").rename(service.directory / "later")
    async with app.client(service):
        await until(lambda: "cannot read" in caplog.text)
        (service.directory / "later").rename(service.directory / "tls.key")
        await service.open("s")
        await service.reported("s", OPEN)
    assert caplog.text.count("cannot read") == 1


def test_pauses_grow_up_to_the_limit_and_differ() -> None:
    def longest(attempt: int) -> float:
        return max(pause_seconds(attempt, 5.0) for _ in range(1000))

    assert longest(0) <= 0.1 < longest(3) <= 0.8
    assert 1.0 < longest(20) <= longest(100_000) + 5.0
    assert longest(100_000) <= 5.0
    assert len({pause_seconds(4, 5.0) for _ in range(50)}) > 1
