"""`Reconciler`: runs the repairs of the room at the start and every minute, and counts and logs what they repaired.

A repair compares two of the database, the pod manager and the host ports, and mends what differs. It may be called
at any time and any number of times; it returns the identifiers of the objects that it repaired. It repairs nothing that
the workers of pods see and mend themselves, such as a container that is missing on its runtime.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from kubeletx.api import Clock, KubeletxError

log = structlog.get_logger(__name__)

Repair = Callable[[], Awaitable[Sequence[str]]]


class Reconciler:
    """Runs the repairs, one after the other. `repaired`, `failed`: counts since the start, by name of the repair."""

    def __init__(
        self,
        repairs: Mapping[str, Repair],
        *,
        ready: asyncio.Event,
        clock: Clock,
        period_seconds: float = 60.0,
    ) -> None:
        """`ready`: set when the repairs work."""
        self.repaired = Counter[str](dict.fromkeys(repairs, 0))
        self.failed = Counter[str](dict.fromkeys(repairs, 0))
        self._repairs = dict(repairs)
        self._ready = ready
        self._clock = clock
        self._period_seconds = period_seconds

    async def run(self) -> None:
        """Run all repairs once they work, and after each period, until cancelled."""
        await self._ready.wait()
        while True:
            await self.once()
            await self._clock.sleep(self._period_seconds)

    async def once(self) -> None:
        """Run all repairs. A repair that fails is logged, and tried again in the next round."""
        for name, repair in self._repairs.items():
            try:
                repaired = await repair()
            except KubeletxError as error:
                self.failed[name] += 1
                log.warning("Failed to reconcile", what=name, err=str(error))
                continue
            self.repaired[name] += len(repaired)
            for identifier in repaired:
                log.warning("Reconciled", what=name, object=identifier)
