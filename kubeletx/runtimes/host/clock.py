"""The real clock, used by the agent and by every isolated plugin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime


class SystemClock:
    """The operating system's clocks as a `kubeletx.api.Clock`; timers run on the event loop."""

    def now(self) -> datetime:
        """Return the wall-clock time, as an aware datetime in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of monotonic time."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` on the event loop at the monotonic time `when`; return a function that cancels the timer."""
        return asyncio.get_running_loop().call_at(when, callback).cancel
