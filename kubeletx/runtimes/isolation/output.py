"""`ChildOutput`: passes what a child process prints to the agent's log, with its owner and within a rate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

import structlog

from ..plugins.failures import LONGEST_TEXT

log = structlog.get_logger(__name__)

BURST_BYTES: Final = 64 * 1024
BYTES_PER_SECOND: Final = 2 * 1024
_REPORT_SECONDS: Final = 60.0


class ChildOutput(asyncio.Protocol):
    """Reads the pipe that is standard output and standard error of a child.

    Each line is a line of the agent's log. A child that prints more than `BURST_BYTES`, and then `BYTES_PER_SECOND`, loses
    the rest: the pipe is always read, so that the child does not wait, and the number of lost bytes is logged.
    """

    def __init__(self, owner: str, now: Callable[[], float]) -> None:
        """`owner`: such as ``runtime edge``. `now`: a monotonic clock."""
        self._owner = owner
        self._now = now
        self._left = float(BURST_BYTES)
        self._filled_at = self._reported_at = now()
        self._line = b""
        self._lost = 0

    @classmethod
    async def open(cls, owner: str) -> tuple[int, asyncio.ReadTransport]:
        """Begin to read a new pipe; return the descriptor of its writing end, and the transport that reads it."""
        reader, writer = os.pipe()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: cls(owner, loop.time), os.fdopen(reader, "rb"))
        return writer, transport

    def data_received(self, data: bytes) -> None:
        now = self._now()
        self._left = min(BURST_BYTES, self._left + (now - self._filled_at) * BYTES_PER_SECOND)
        self._filled_at = now
        kept = data[: max(int(self._left), 0)]
        self._left -= len(kept)
        self._lost += len(data) - len(kept)
        *lines, self._line = (self._line + kept).split(b"\n")
        for line in lines:
            self._write(line)
        if len(self._line) > LONGEST_TEXT:
            self._write(self._line)
            self._line = b""
        if self._lost and now - self._reported_at >= _REPORT_SECONDS:
            self._report()

    def connection_lost(self, _error: Exception | None) -> None:
        """Log what is left: the child, and every process that has its pipe, has ended."""
        self._write(self._line)
        if self._lost:
            self._report()

    def _write(self, line: bytes) -> None:
        if line.strip():
            text = line[:LONGEST_TEXT].decode(errors="backslashreplace").rstrip()
            log.info("Output of plugin", owner=self._owner, text=text)

    def _report(self) -> None:
        log.warning("Left out output of plugin, which prints too much", owner=self._owner, bytes=self._lost)
        self._lost, self._reported_at = 0, self._now()
