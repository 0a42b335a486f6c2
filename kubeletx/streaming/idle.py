"""Closes streams without data for too long.

Code that moves bytes calls `Idle.touch`, which delays the end of the guarded work. Where this side implements the
protocol only data counts (`watch`), not the pings that keep proxies awake; in pass-through all bytes count, since they
are not parsed. Source: KubeletConfiguration, streamingConnectionIdleTimeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from kubeletx.api import Channel, Session


class Idle:
    """Timer that restarts with each `touch` and ends work without data. `seconds`: the limit; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()

    def touch(self) -> None:
        """Restart the time: data moved now."""
        self._at = self._loop.time()

    @property
    def left_seconds(self) -> float | None:
        """Seconds until the limit; 0 once it is reached; None without a limit."""
        return None if self._seconds is None else max(0.0, self._at + self._seconds - self._loop.time())

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work. Cancel it and return, without an error, once no data moved for `seconds`."""
        task = asyncio.create_task(work, name="stream")
        try:
            while not task.done() and self.left_seconds != 0:
                await asyncio.wait([task], timeout=self.left_seconds)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()

    def watch(self, session: Session) -> Session:
        """Return a session that passes everything on to `session` and calls `touch` for its data."""
        return _Watched(session, self)


class _Watched:
    """Session that calls `Idle.touch` for all data of another session."""

    def __init__(self, session: Session, idle: Idle) -> None:
        self._session = session
        self._idle = idle
        self.close_stdin = session.close_stdin
        self.wait = session.wait
        self.close = session.close

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        async for channel, data in self._session.output():
            self._idle.touch()
            yield channel, data

    async def write(self, data: bytes) -> None:
        self._idle.touch()
        await self._session.write(data)

    async def resize(self, width: int, height: int) -> None:
        self._idle.touch()
        await self._session.resize(width, height)
