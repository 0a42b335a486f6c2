"""logind as the agent sees it, for tests: a lock that delays the shutdown of the host."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from kubeletx.api import Unavailable


class Lock:
    """The agent's view of logind: `tell` begins or cancels a shutdown."""

    one: ClassVar[Lock]

    def __init__(self, _blocking: object) -> None:
        Lock.one = self
        self.is_held = False
        self.delay_seconds = 0
        self.failures = 0
        self._reported: asyncio.Queue[bool | None] = asyncio.Queue()

    def tell(self, is_ending: bool | None) -> None:
        """None: the bus disappears."""
        self._reported.put_nowait(is_ending)

    async def open(self, delay_seconds: int) -> bool:
        if self.failures:
            self.failures -= 1
            raise Unavailable("no bus")
        self.delay_seconds, self.is_held = delay_seconds, True
        return False

    async def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    async def next(self) -> bool:
        reported = await self._reported.get()
        if reported is None:
            raise Unavailable("lost the bus")
        return reported

    def close(self) -> None:
        self.is_held = False
