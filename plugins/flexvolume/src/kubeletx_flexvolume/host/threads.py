"""`Threads`: runs blocking functions on the agent's threads, and waits for a free one.

The agent refuses a call when all threads of the driver are busy. Here a call waits instead. Work that may hang, on
devices and on file systems of volumes, has its own share of the threads, so that journals are always written.

Work on the node's own files is short and is finished also if the caller is cancelled: a late write would otherwise
replace what the next call for the volume has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from kubeletx.api import Blocking, TimedOut
from kubeletx.api.names import Event

R = TypeVar("R")

FILE_THREADS: Final = 2
VOLUME_THREADS: Final = 2
"""Together the number of threads that the agent gives to one registration."""


class Threads:
    """A share of the agent's threads."""

    def __init__(self, blocking: Blocking, most: int, *, finishes: bool) -> None:
        """`most`: number of calls that run at the same time.

        `finishes`: a cancelled caller waits until its function has returned. False: the function continues without it,
        and occupies its share until it returns.
        """
        self._blocking = blocking
        self._finishes = finishes
        self._free = asyncio.Semaphore(most)

    async def run(self, function: Callable[..., R], *args: Any) -> R:
        await self._free.acquire()
        task = asyncio.create_task(self._call(function, *args), name="flexvolume thread")
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._finishes:
                await _finished(task)
            raise

    async def run_until(self, until: float, function: Callable[..., R], *args: Any) -> R:
        """Call the function as `run` does. Raises TimedOut at `until`, in the time of the event loop."""
        try:
            async with asyncio.timeout_at(until):
                return await self.run(function, *args)
        except TimeoutError:
            raise TimedOut(
                "a device or a file system did not answer before the deadline", reason=Event.FAILED_MOUNT
            ) from None

    async def _call(self, function: Callable[..., R], *args: Any) -> R:
        return await self._blocking(function, *args)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._free.release()
        if not task.cancelled():
            task.exception()  # a cancelled caller does not look at it


async def _finished(task: asyncio.Task[Any]) -> None:
    while not task.done():
        with suppress(asyncio.CancelledError):  # the caller raises its own
            await asyncio.wait((task,))
