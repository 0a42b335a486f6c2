"""Threads for blocking file work: volumes, directories, termination messages.

At most `TURNS` calls run at once. A call that takes longer than `LONG_SECONDS`, such as one to a dead file server, lets
the next call start and keeps its thread. When `THREADS` threads are busy with such calls, new calls are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from kubeletx.api import BoundedThreadPool

T = TypeVar("T")

TURNS = 8
LONG_SECONDS = 5.0
THREADS = 64


class FileThreads:
    """Thread pool of bounded size for blocking calls on files. Implements `api.Blocking`."""

    def __init__(self) -> None:
        self._pool = BoundedThreadPool("files", THREADS)
        self._turns = asyncio.Semaphore(TURNS)

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run the function on a thread and return its result. Raises Unavailable if all threads are blocked."""
        await self._turns.acquire()
        release = _Once(self._turns.release)
        timer = asyncio.get_running_loop().call_later(LONG_SECONDS, release)
        try:
            return await self._pool.run(function, *args)
        finally:
            timer.cancel()
            release()

    def close(self) -> None:
        """Let idle threads end; does not wait for threads that are blocked."""
        self._pool.close()


class _Once:
    """Callable that calls the wrapped function the first time and does nothing after that."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()
