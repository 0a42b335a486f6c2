"""`Relay`: copies bytes between two connections in both directions, with back-pressure and half-close.

Data received on one connection are written to the other at once, without a task or buffer in between. If a connection
cannot send more for now, reading from the other one pauses. When one side sends end of file, the other connection is
half-closed and the other direction continues; with TLS, which has no half-close, the other connection is closed. When
one connection breaks, the other one is closed after all pending data are sent to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from .idle import Idle, wait_sent

LEAVE_SECONDS: Final = 10.0
"""Seconds that a side has to read its pending bytes after `Relay.close`; then its connection is aborted."""


class Copied(NamedTuple):
    """Numbers of bytes that a `Relay` has copied. `right`: from left to right. `left`: from right to left."""

    right: int
    left: int


class Relay:
    """Copies bytes between two connections, called left and right, in both directions.

    Its attributes `left` and `right` are asyncio protocols. Connect each of them to a transport, then await `run`.
    """

    def __init__(
        self,
        *,
        idle_seconds: float | None = None,
        on_left_lost: Callable[[Exception | None], None] | None = None,
        leave_seconds: float = LEAVE_SECONDS,
    ) -> None:
        """`idle_seconds`: both connections are closed after this time without data; None: never.

        `on_left_lost`: called when the left connection is lost; its argument is that of
        `asyncio.Protocol.connection_lost`.
        """
        self._idle = Idle(idle_seconds)
        self._leave_seconds = leave_seconds
        self._changed = asyncio.Event()
        self.left = End(self._idle, self._changed, on_left_lost)
        self.right = End(self._idle, self._changed)
        self.left.peer, self.right.peer = self.right, self.left

    async def run(self) -> Copied:
        """Copy bytes until both connections have ended, and return how many. Closes both also if cancelled."""
        try:
            await self._idle.guard(self._serve())
        finally:
            self.close()
        return Copied(self.left.count, self.right.count)

    def close(self) -> None:
        """Close both connections. Pending data are still sent to a side that reads them within `leave_seconds`."""
        for end in (self.left, self.right):
            if end.transport is not None and not end.is_lost:
                _close(end.transport)
                asyncio.get_running_loop().call_later(self._leave_seconds, end.transport.abort)

    async def _serve(self) -> None:
        while not (self.left.is_lost and self.right.is_lost):
            self._changed.clear()
            for end in (self.left, self.right):
                if end.is_finished and end.transport is not None and not end.transport.is_closing():
                    await wait_sent(end.transport)
                    _close(end.transport)
            await self._changed.wait()


class End(asyncio.Protocol):
    """asyncio protocol of one of the two connections of a `Relay`. `peer`: the `End` of the other connection.

    `count`: number of bytes received on this connection. `is_finished`: no more bytes will be written to it.
    `is_lost`: this connection has ended.
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
        """Store the transport of this connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Write the received data to the other connection."""
        self._idle.touch()
        self.count += len(data)
        if self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Half-close the other connection.

        Returns True (keep this connection open for sending) unless this connection uses TLS, or the other side
        has sent end of file too.
        """
        self._has_ended = True
        assert self.transport is not None
        there = self.peer.transport
        if there is not None and not there.is_closing():
            if self.peer._has_ended or not there.can_write_eof():
                self._finish_peer()
            else:
                there.write_eof()
        if self.transport.is_closing():  # a closed TLS transport has no extra info
            return False
        is_tls = self.transport.get_extra_info("sslcontext") is not None
        return not is_tls and not self.peer._has_ended

    def pause_writing(self) -> None:
        """Stop reading from the other connection, since too many bytes wait to be sent on this one."""
        if self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read from the other connection."""
        if self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of this connection. The other connection is closed once its pending data are sent."""
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
    ):  # after a second close, asyncio's TLS transport has no connection any more, and cannot abort it
        transport.close()
