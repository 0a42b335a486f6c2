"""`UsageRing`: usage of the machine and of each pod in the last 15 minutes, measured only while a client asks for it."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog

from kubeletx.api import Clock, KubeletxError
from kubeletx.server.views import MeasuredUsage, UsageHistory, UsageSeries, UsageView

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 10.0
SAMPLES: Final = 90
IDLE_SECONDS: Final = 60.0
"""Without a call for this time, measuring ends and all samples are dropped."""
_NONE: Final = -1


class UsageRing:
    """Measures usage at intervals from a first call of `read` until there was no call for `IDLE_SECONDS`.

    A sample of a pod takes 16 bytes, so a full ring of 110 pods takes about 160 kB.
    """

    def __init__(self, measure: Callable[[], Awaitable[UsageView]], clock: Clock) -> None:
        """`measure`: measures the usage now."""
        self._measure = measure
        self._clock = clock
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._count = 0
        self._times: deque[datetime] = deque(maxlen=SAMPLES)
        self._series: dict[str, array[int]] = {}
        """CPU and memory in turn, of the last `SAMPLES` measurements, by UID of the pod; the machine has none."""

    def read(self, after: int) -> UsageHistory:
        """Return the samples from number `after` on; a number of an earlier ring returns all."""
        self._asked_at = self._clock.monotonic()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="usage ring")
        later = self._count - after if after <= self._count else SAMPLES
        times = tuple(self._times)[-later:] if later else ()
        new = len(times)
        return UsageHistory(
            next=self._count,
            interval_seconds=INTERVAL_SECONDS,
            times=times,
            series=tuple(
                UsageSeries(uid=uid, cpu=_last(values[::2], new), memory=_last(values[1::2], new))
                for uid, values in self._series.items()
            ),
        )

    async def close(self) -> None:
        """Stop measuring and drop all samples."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            while self._clock.monotonic() - self._asked_at < IDLE_SECONDS:
                try:
                    self._add(await self._measure())
                except KubeletxError as error:
                    log.debug("Measured no usage", err=str(error))
                await self._clock.sleep(INTERVAL_SECONDS)
        finally:
            self._task = None
            self._times.clear()
            self._series.clear()

    def _add(self, usage: UsageView) -> None:
        present = {"": usage.node, **{pod.uid: pod.usage for pod in usage.pods}}
        self._times.append(self._clock.now())
        self._count += 1
        for uid in dict.fromkeys((*present, *self._series)):
            one = present.get(uid, MeasuredUsage())
            values = self._series.setdefault(uid, array("q", [_NONE]) * (2 * SAMPLES))
            values.extend(_NONE if n is None else n for n in (one.cpu_millicores, one.memory_bytes))
            del values[:2]
            if uid not in present and max(values) == _NONE:
                del self._series[uid]


def _last(values: array[int], count: int) -> tuple[int | None, ...]:
    return tuple(None if value == _NONE else value for value in values[len(values) - count :])
