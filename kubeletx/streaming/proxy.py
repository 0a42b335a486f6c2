"""A byte proxy between two connections, with back-pressure and half-close.

Each direction is copied by a task of its own: it reads only when what it wrote before has left, passes an end
of file on as a half-close, and goes on in the other direction. An error in one direction ends both.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

READ_BYTES = 1 << 16


class Pipe(NamedTuple):
    """One connection: both halves of it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Copied(NamedTuple):
    """Bytes that went from left to right and from right to left."""

    right: int
    left: int


async def splice(left: Pipe, right: Pipe, *, idle_seconds: float | None = None) -> Copied:
    """Copy both ways until both ends are closed; closes both connections.

    `idle_seconds`: both are closed when nothing came from either for so long; None: never.
    """
    seen = _Seen()
    tasks = [
        asyncio.create_task(_copy(left.reader, right.writer, seen), name="proxy-right"),
        asyncio.create_task(_copy(right.reader, left.writer, seen), name="proxy-left"),
    ]
    try:
        await _wait(tasks, seen, idle_seconds)
    finally:
        for task in tasks:
            task.cancel()
        for pipe in (left, right):  # before anything is awaited: a server that stops cancels a second time
            pipe.writer.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)
    return Copied(*(count if isinstance(count, int) else 0 for count in done))


class _Seen:
    """When the last bytes came, in the loop's time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.at = self._loop.time()

    def touch(self) -> None:
        """Now."""
        self.at = self._loop.time()


async def _wait(tasks: list[asyncio.Task[int]], seen: _Seen, idle_seconds: float | None) -> None:
    """Return when all are done, when one failed, or when nothing was seen for so long."""
    loop = asyncio.get_running_loop()
    while True:
        left = None if idle_seconds is None else seen.at + idle_seconds - loop.time()
        if left is not None and left <= 0:
            return
        done, pending = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        if not pending or any(task.exception() is not None for task in done):
            return


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: _Seen) -> int:
    count = 0
    while data := await reader.read(READ_BYTES):
        seen.touch()
        writer.write(data)
        await writer.drain()
        count += len(data)
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
    return count
