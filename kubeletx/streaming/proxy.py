"""A byte proxy between two connections, with back-pressure and half-close.

What one end receives is written to the other at once, without a task or a buffer between them: an end whose own
connection takes no more stops the other from reading. An end of file is passed on as a half-close, or as the end of the
connection where TLS knows no half-close, and the other direction goes on. A connection that breaks ends both, the other one
once it was sent all that came: its reader may be slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from .idle import Idle
from .unsent import wait_sent

LEAVE_SECONDS: Final = 10.0
"""Time for one side to take pending bytes after the other side ended; then its connection is closed."""


class Copied(NamedTuple):
    """Bytes that a relay copied: `right` from the left to the right end, `left` from the right to the left."""

    right: int
    left: int


class Relay:
    """Copies bytes between two connections. `left` and `right` are the protocols for their transports.

    Give each end its transport, then await `run`.
    """

    def __init__(
        self,
        *,
        idle_seconds: float | None = None,
        on_left_lost: Callable[[Exception | None], None] | None = None,
    ) -> None:
        """`idle_seconds`: both connections are closed after this long without data; None: never.

        `on_left_lost`: called when the left connection ends, with the error or None, as `connection_lost` is.
        """
        self._idle = Idle(idle_seconds)
        self._changed = asyncio.Event()
        self.left = End(self._idle, self._changed, on_left_lost)
        self.right = End(self._idle, self._changed)
        self.left.peer, self.right.peer = self.right, self.left

    async def run(self) -> Copied:
        """Copy bytes until both connections have ended. Closes them also if it is cancelled."""
        try:
            await self._idle.guard(self._serve())
        finally:
            self.close()
        return Copied(self.left.count, self.right.count)

    def close(self) -> None:
        """Close both connections.

        An end gets the data that are not sent yet if it reads them within `LEAVE_SECONDS`.
        """
        for end in (self.left, self.right):
            if end.transport is not None and not end.is_lost:
                _close(end.transport)
                asyncio.get_running_loop().call_later(LEAVE_SECONDS, end.transport.abort)

    async def _serve(self) -> None:
        while not (self.left.is_lost and self.right.is_lost):
            self._changed.clear()
            for end in (self.left, self.right):
                if end.is_finished and end.transport is not None and not end.transport.is_closing():
                    await wait_sent(end.transport)
                    _close(end.transport)
            await self._changed.wait()


class End(asyncio.Protocol):
    """One end of a `Relay`: the asyncio protocol of one of its two connections.

    `count`: bytes received here. `is_finished`: no more bytes will be sent to it. `is_lost`: its connection
    has ended.
    """

    peer: End

    def __init__(
        self, idle: Idle, changed: asyncio.Event, on_lost: Callable[[Exception | None], None] | None = None
    ) -> None:
        self._idle = idle
        self._changed = changed
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None
        self.count = 0
        self.is_lost = self.is_finished = False
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to write to it later."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Write the data to the other end."""
        self._idle.touch()
        self.count += len(data)
        if self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Half-close the other end. Returns True to keep this end open for sending, which TLS cannot, else False."""
        self._has_ended = True
        assert self.transport is not None
        there = self.peer.transport
        if there is not None and not there.is_closing():
            if self.peer._has_ended or not there.can_write_eof():
                self._finish_peer()
            else:
                there.write_eof()
        is_tls = self.transport.get_extra_info("sslcontext") is not None
        return not is_tls and not self.peer._has_ended

    def pause_writing(self) -> None:
        """Stop reading from the other end, since too many bytes wait to be sent to this one."""
        if self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read from the other end."""
        if self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of this connection. The other one is closed once all its data are sent."""
        self.is_lost = True
        self._finish_peer()
        if self._on_lost is not None:
            self._on_lost(exc)

    def _finish_peer(self) -> None:
        self.peer.is_finished = True
        self._changed.set()


def _close(transport: asyncio.Transport) -> None:
    if (
        not transport.is_closing()
    ):  # closed twice, asyncio's TLS forgets the connection, and cannot abort it any more
        transport.close()
