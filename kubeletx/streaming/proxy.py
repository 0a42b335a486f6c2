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


async def splice(left: Pipe, right: Pipe) -> Copied:
    """Copy both ways until both ends are closed; closes both connections."""
    rightwards = asyncio.create_task(_copy(left.reader, right.writer), name="proxy-right")
    leftwards = asyncio.create_task(_copy(right.reader, left.writer), name="proxy-left")
    try:
        await asyncio.wait([rightwards, leftwards], return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in (rightwards, leftwards):
            task.cancel()
        done = await asyncio.gather(rightwards, leftwards, return_exceptions=True)
        for pipe in (left, right):
            pipe.writer.close()
    return Copied(*(count if isinstance(count, int) else 0 for count in done))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    count = 0
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
        count += len(data)
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
    return count
