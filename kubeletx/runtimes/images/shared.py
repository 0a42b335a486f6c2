"""`Shared`: makes one call for all concurrent callers with the same key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Lets concurrent callers share one running call.

    Only for calls that read: the call may have begun before the caller joined, and its result may be that old.
    """

    def __init__(self, name: str) -> None:
        """`name`: first part of the names of the asyncio tasks that make the calls."""
        self._name = name
        self._calls: dict[Hashable, asyncio.Task[T]] = {}

    async def join(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the running call for `key`; if there is none, start one with `call`.

        A cancelled caller does not affect the others.
        """
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.ensure_future(_task_of(call))
            task.set_name(f"{self._name} {key}")
            task.add_done_callback(lambda done: self._ended(key, done))
        # Without the shield the first cancelled caller would cancel the call of all others.
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel the running calls; their callers are cancelled too."""
        for task in self._calls.values():
            task.cancel()

    def _ended(self, key: Hashable, done: asyncio.Task[T]) -> None:
        self._calls.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieved, even if all callers were cancelled


async def _task_of(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
