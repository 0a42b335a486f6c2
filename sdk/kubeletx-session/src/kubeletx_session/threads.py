"""`SessionClient`: serves sessions for applications without asyncio. It runs `AsyncSessionClient` in a thread.

Each call of the application gets a thread of its own, so a slow one delays no other session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, Self

from .client import AsyncSessionClient
from .session import Session
from .settings import Settings

_LAST_CALLS_SECONDS = 10.0

OnOpen = Callable[[Session], None]
OnClose = Callable[[Session, float], None]


class SessionClient:
    """Connects to the session service of the node, and calls `on_open` and `on_close` in threads.

    Start it after the process has forked, not before.
    """

    def __init__(
        self, on_open: OnOpen, on_close: OnClose | None = None, *, settings: Settings | None = None
    ) -> None:
        """Arguments as of `AsyncSessionClient`. A call of `on_close` that outlasts the grace period is abandoned."""
        self._on_open = on_open
        self._on_close = on_close
        self._settings = Settings.from_environment() if settings is None else settings
        self._client: AsyncSessionClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def sessions(self) -> Mapping[str, Session]:
        """Sessions by id: open ones, and closed ones until the node knows."""
        return {} if self._client is None else self._client.sessions

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to serve sessions; does not wait for the connection."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubeletx-session", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def run(self) -> None:
        """Serve sessions until SIGTERM or SIGINT; then close them and return. Only in the main thread."""
        # The interpreter writes each signal's number to the pipe at once. A wait for an Event may miss a signal that arrives just
        # before it blocks, since Python's own handlers run later.
        numbers = (signal.SIGTERM, signal.SIGINT)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        before = [signal.signal(number, _ignore) for number in numbers]
        try:
            with self:
                while not set(os.read(reader, 64)) & set(numbers):
                    pass
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            signal.set_wakeup_fd(former)
            os.close(reader)
            os.close(writer)

    def close(self, grace_seconds: float | None = None) -> None:
        """Close all sessions, report that, disconnect, and end the thread. See `AsyncSessionClient.close`."""
        if self._client is None or self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end(self._client, grace_seconds), self._loop).result()
        self._client = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        async def on_open(session: Session) -> None:
            await _in_thread(self._on_open, session)

        async def on_close(session: Session, grace_seconds: float) -> None:
            if self._on_close is not None:
                await _in_thread(self._on_close, session, grace_seconds)

        self._client = AsyncSessionClient(on_open, on_close, settings=self._settings)
        await self._client.start()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Keep the signal from ending the process."""


async def _end(client: AsyncSessionClient, grace_seconds: float | None) -> None:
    """Close the client, and wait for the tasks that gRPC has for its ended calls: the loop is closed afterwards."""
    await client.close(grace_seconds)
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=_LAST_CALLS_SECONDS)


async def _in_thread(function: Callable[..., None], session: Session, *arguments: Any) -> None:
    """Call a function in a new daemon thread and wait for it; a cancellation abandons the thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            function(session, *arguments)
        except Exception as caught:  # noqa: BLE001  # raised in the task that waits
            error = caught
        try:
            loop.call_soon_threadsafe(finish, error)
        except RuntimeError:  # the client was closed meanwhile
            return

    threading.Thread(target=run, name=f"session {session.id}", daemon=True).start()
    await done
