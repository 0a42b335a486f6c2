"""`Latest`: a bounded queue of changes for a watch, which keeps only the newest change of each key for a slow
reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Latest(Generic[V]):
    """Queue of changes by key, for one reader.

    Iteration does not end; it yields each key's newest value, in the order of the keys' first change.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, V] = {}
        self._news = asyncio.Event()

    def put(self, key: Hashable, value: V) -> None:
        """Set the pending value of the key."""
        self._waiting[key] = value
        self._news.set()

    def find(self, key: Hashable) -> V | None:
        """Pending value of the key; None if there is none."""
        return self._waiting.get(key)

    async def __aiter__(self) -> AsyncIterator[V]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                yield self._waiting.pop(key)
