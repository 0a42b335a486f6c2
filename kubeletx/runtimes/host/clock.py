"""The real clock, used by the agent and by every isolated plugin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime


class SystemClock:
    """The operating system's clocks as a `kubeletx.api.Clock`; timers run on the event loop."""

    def now(self) -> datetime:
        """Aware UTC wall-clock time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Monotonic seconds, by the event loop's clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back on the event loop at a monotonic time; returns the function that cancels the timer."""
        return asyncio.get_running_loop().call_at(when, callback).cancel
