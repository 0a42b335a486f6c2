"""A wait that ends by a signal or after a time, measured on an injected clock."""

from __future__ import annotations

import asyncio

from kubeletx.api import Clock


class Alarm:
    """A wake-up signal: callbacks set it with `ring`, and one task waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the waiting task, or make its next wait return at once."""
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until `ring` is called or `seconds` have passed.

        Returns True if it was called, even if before this wait.
        """
        timer = asyncio.create_task(self._clock.sleep(seconds), name="alarm-timer")
        ring = asyncio.create_task(self._rung.wait(), name="alarm-ring")
        try:
            await asyncio.wait((timer, ring), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            ring.cancel()
            await asyncio.gather(timer, ring, return_exceptions=True)
        was_rung = self._rung.is_set()
        self._rung.clear()
        return was_rung
