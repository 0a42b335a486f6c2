"""`Latest`: queue of changes for a watch, which keeps only the newest change of each key while the reader is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Latest(Generic[V]):
    """Queue of changes for one reader, which keeps one pending value per key.

    Iterate it with ``async for``; the iteration does not end. It yields the newest value of each changed key, in the
    order in which the keys were first put.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, V] = {}
        self._news = asyncio.Event()

    def put(self, key: Hashable, value: V) -> None:
        """Set the pending value of the key; replaces a value that the reader has not taken yet."""
        self._waiting[key] = value
        self._news.set()

    def find(self, key: Hashable) -> V | None:
        """Return the value of the key that the reader has not taken yet; None if there is none."""
        return self._waiting.get(key)

    async def __aiter__(self) -> AsyncIterator[V]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                yield self._waiting.pop(key)
