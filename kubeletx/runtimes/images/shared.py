"""`Shared`: one call for all concurrent callers with the same key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Lets concurrent callers share one running call; for reads only, as the answer may be older than a caller."""

    def __init__(self, name: str) -> None:
        """`name`: first part of the names of the tasks."""
        self._name = name
        self._calls: dict[Hashable, asyncio.Task[T]] = {}

    async def join(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Await the running call for `key`, or start one. A cancelled caller does not affect the others."""
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.ensure_future(_task_of(call))
            task.set_name(f"{self._name} {key}")
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel the calls in flight, and with them their callers."""
        for task in self._calls.values():
            task.cancel()

    def _ended(self, key: Hashable, done: asyncio.Task[T]) -> None:
        self._calls.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen, even when everybody who asked was cancelled


async def _task_of(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
