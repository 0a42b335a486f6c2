"""Threads for blocking file work: volumes, directories, termination messages.

At most `TURNS` calls run at once. A call that takes longer than `LONG_SECONDS`, such as one to a dead file server, lets
the next call start and keeps its thread. When `THREADS` threads are busy with such calls, new calls are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from kubeletx.api import BoundedThreadPool

T = TypeVar("T")

TURNS = 8
LONG_SECONDS = 5.0
THREADS = 64


class FileThreads:
    """Thread pool of bounded size for blocking calls on files. Implements `api.Blocking`."""

    def __init__(
        self, *, turns: int = TURNS, threads: int = THREADS, long_seconds: float = LONG_SECONDS
    ) -> None:
        self._pool = BoundedThreadPool("files", threads)
        self._turns = asyncio.Semaphore(turns)
        self._long_seconds = long_seconds

    @property
    def busy(self) -> int:
        """Number of threads that run a call."""
        return self._pool.busy

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run the function on a thread and return its result. Raises Unavailable if all threads are blocked."""
        await self._turns.acquire()
        turn = contextlib.ExitStack()  # releases once: at the end, or when the call has taken long
        turn.callback(self._turns.release)
        timer = asyncio.get_running_loop().call_later(self._long_seconds, turn.close)
        try:
            return await self._pool.run(function, *args)
        finally:
            timer.cancel()
            turn.close()

    def close(self) -> None:
        self._pool.close()
