"""`UsageRing`: usage of the machine and of each pod in the last 15 minutes, measured only while a client asks for it."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
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
_MACHINE: Final = ""


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
        self._series: dict[str, tuple[array[int], array[int]]] = {}

    def read(self, after: int) -> UsageHistory:
        """Return the samples from number `after` on; a number of an earlier ring returns all."""
        self._asked_at = self._clock.monotonic()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="usage ring")
        first = self._count - len(self._times)
        skip = max(after - first, 0) if after <= self._count else 0
        return UsageHistory(
            next=self._count,
            interval_seconds=INTERVAL_SECONDS,
            times=tuple(self._times)[skip:],
            series=tuple(
                UsageSeries(uid=uid, cpu=_values(cpu, skip), memory=_values(memory, skip))
                for uid, (cpu, memory) in self._series.items()
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
        present = {_MACHINE: usage.node, **{pod.uid: pod.usage for pod in usage.pods}}
        before = len(self._times)
        self._times.append(self._clock.now())
        self._count += 1
        for uid in present.keys() - self._series.keys():
            self._series[uid] = array("q", [_NONE]) * before, array("q", [_NONE]) * before
        for uid, series in tuple(self._series.items()):
            measured = present.get(uid, MeasuredUsage())
            for values, value in zip(series, (measured.cpu_millicores, measured.memory_bytes), strict=True):
                values.append(_NONE if value is None else value)
                del values[:-SAMPLES]
            if uid not in present and all(max(values) == _NONE for values in series):
                del self._series[uid]


def _values(values: Iterable[int], skip: int) -> tuple[int | None, ...]:
    return tuple(None if value == _NONE else value for value in tuple(values)[skip:])
