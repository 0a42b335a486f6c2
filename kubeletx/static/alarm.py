"""`Alarm`: a signal for which one task waits, at most a given time on an injected clock."""

from __future__ import annotations

import asyncio

from kubeletx.api import (
    Clock,
    sleep_or,
)


class Alarm:
    """Signal that callbacks set with `ring` and for which one task waits, with a time-out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Set the signal: a running `wait` returns, or the next one returns at once."""
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until the signal is set, clear it, and return True; return False after `seconds`.

        Returns True at once if `ring` was called since the last wait.
        """
        was_rung = await sleep_or(self._clock, seconds, self._rung)
        self._rung.clear()
        return was_rung
