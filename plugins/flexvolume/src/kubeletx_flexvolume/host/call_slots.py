"""`CallSlots`: limits how many drivers' calls run at the same time; further calls wait in their order.

At most 8 calls run over all drivers, and at most 6 of one driver: a driver that hangs leaves room for the others.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MOST_CALLS: Final = 8
MOST_OF_ONE_DRIVER: Final = 6


class CallSlots:
    """Slots for the calls of all drivers."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MOST_CALLS)
        self._by_driver: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_OF_ONE_DRIVER)
        )

    @asynccontextmanager
    async def slot(self, driver: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it. `driver`: name of the called driver."""
        async with self._by_driver[driver], self._all:
            yield
