"""The client for threads against a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

from kubeletx_session import Session, SessionClient
from kubeletx_session.stubs import session_service_pb2 as pb


async def test_sessions_are_served_in_threads_and_a_slow_one_delays_no_other(service: Any) -> None:
    release, opened, closed = threading.Event(), [], []

    def on_open(session: Session) -> None:
        if session.data == b"slow":
            release.wait(60)
        opened.append(session)

    with SessionClient(
        on_open, lambda session, grace: closed.append((session.id, grace > 50)), settings=service.settings()
    ) as client:
        await service.open("slow", b"slow")
        await service.open("quick")
        await service.reported("quick", pb.STATE_OPEN)
        release.set()
        await service.reported("slow", pb.STATE_OPEN)
        opened[0].join("ann")
        await service.reports("quick", lambda message: message.sessionStatus.clientSession)
        opened[0].close()
        await service.reported("quick", pb.STATE_CLOSED)
        assert "slow" in client.sessions
        await _close(client)
        await service.reported("slow", pb.STATE_CLOSED)
    assert closed[0] == ("quick", True)
    assert client.sessions == {}


async def _close(client: SessionClient) -> None:
    """Close in a thread, since the server runs in the loop of the test."""
    await asyncio.to_thread(client.close)


async def test_an_error_of_the_application_and_a_hanging_end_close_the_session(service: Any) -> None:
    release = threading.Event()

    def on_open(session: Session) -> None:
        if session.id == "bad":
            raise RuntimeError("no room")

    def on_close(session: Session, grace_seconds: float) -> None:
        release.wait(60)

    client = SessionClient(on_open, on_close, settings=service.settings())
    client.start()
    await service.open("bad")
    await service.reported("bad", pb.STATE_CLOSED)
    await service.open("hangs")
    await service.reported("hangs", pb.STATE_OPEN)
    await service.close("hangs", 0)
    await service.reported("hangs", pb.STATE_CLOSED)
    release.set()
    await _close(client)


async def test_nothing_is_left_of_a_client_that_was_not_started(service: Any) -> None:
    client = SessionClient(lambda session: None, settings=service.settings())
    client.close()


def test_sigterm_ends_run(folder: Any, authority: Any) -> None:
    """Without a node: it ends all the same."""
    from kubeletx_session import Settings

    client = SessionClient(
        lambda session: None, settings=Settings(directory=folder, service="unix:///nowhere")
    )
    started = threading.Event()
    begin = client.start

    def start() -> None:
        begin()
        started.set()

    client.start = start  # type: ignore[method-assign]  # to know when it runs

    def end() -> None:
        started.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end)
    ender.start()
    before = signal.getsignal(signal.SIGTERM)
    client.run()
    ender.join()
    assert signal.getsignal(signal.SIGTERM) == before
