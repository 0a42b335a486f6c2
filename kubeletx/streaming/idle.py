"""`Idle`: closes streams that have transferred no data for a given time.

Code that copies bytes calls `Idle.touch`, which restarts the time. If this process implements the protocol itself, only
data restarts the time (`Idle.watch`), not pings. If it only copies bytes between two connections, all bytes do, since
they are not parsed. Source: KubeletConfiguration, streamingConnectionIdleTimeout. `wait_sent`: waits for the last data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from kubeletx.api import Channel, Session

_LOOK_SECONDS: Final = 0.05
"""Polling interval. asyncio does not report when a buffer is empty, only when it accepts data again."""


class Idle:
    """Idle time-out: cancels work if `touch` is not called for `seconds`. `seconds` None: no limit.

    `time`: returns the present monotonic time; None: the event loop's.
    """

    def __init__(self, seconds: float | None, time: Callable[[], float] | None = None) -> None:
        self._seconds = seconds
        self._time = time or asyncio.get_running_loop().time
        self._at = self._time()

    def touch(self) -> None:
        """Restart the idle time. Call it whenever data are transferred."""
        self._at = self._time()

    @property
    def left_seconds(self) -> float | None:
        """Seconds until the idle time-out; 0 once it has expired; None if there is no limit."""
        return None if self._seconds is None else max(0.0, self._at + self._seconds - self._time())

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends. Cancel it and return normally if `touch` was not called for `seconds`."""
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
        """Return a session that forwards all calls to `session`, and calls `touch` for its data in both directions."""
        return _Watched(session, self)


class _Watched:
    """Session that forwards all calls to another one, and calls `Idle.touch` for its data."""

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


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return the number of bytes that were written to `transport` and not yet passed to the kernel.

    With TLS this includes the buffer of the underlying socket, which is read through private attributes of
    asyncio.
    """
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)


async def wait_sent(transport: asyncio.WriteTransport) -> None:
    """Wait until all written bytes have been passed to the kernel, or the connection is closing. No time limit.

    Call it before closing a connection: a closed TLS transport of asyncio waits only some seconds for the peer's close
    message, and then drops its unsent data, up to a megabyte.
    """
    while not transport.is_closing() and unsent_bytes(transport):  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(_LOOK_SECONDS)
