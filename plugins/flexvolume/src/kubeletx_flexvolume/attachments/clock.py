"""`LoopClock`: the operating system's clocks, for the processes of this distribution that are not the node agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime


class LoopClock:
    """Clock whose timers run on the event loop. Implements `kubeletx.api.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_at(when, callback).cancel
