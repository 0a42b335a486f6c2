"""A clock that moves only when a test moves it.

`FakeClock` implements `kubeletx.api.Clock`. `advance` moves wall clock and monotonic time and wakes the sleeping
tasks that are due. `run_for` does this in steps, from one due time to the next, and lets woken tasks run and sleep
again between them. `jump` moves only the wall clock, as an administrator or NTP would. With ``auto_advance=True``, time
moves to the next due time as soon as the event loop is idle, so that waiting code finishes at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Default start time of a `FakeClock`."""

_SETTLE_ROUNDS = 25
_IDLE_SECONDS = 0.001


class FakeClock:
    """A `Clock` that a test controls. Use it in one event loop only."""

    def __init__(self, *, start: datetime = START, auto_advance: bool = False) -> None:
        """`start`: wall-clock time with a time zone.

        `auto_advance`: whenever the event loop is idle, move time to the moment at which the next sleep ends.
        """
        self._wall = start
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._auto_advance = auto_advance
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> datetime:
        """Return the wall-clock time, with its time zone (UTC unless `start` has another)."""
        return self._wall

    def now_ns(self) -> int:
        """Return the wall-clock time in nanoseconds since the epoch, as runtimes report times."""
        elapsed = self._wall - datetime.fromtimestamp(0, UTC)
        return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000_000 + elapsed.microseconds * 1000

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock by `seconds`; 0 or less only lets other tasks run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        self._arm()
        await future

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once the monotonic time has reached `when`.

        The returned function cancels the call.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: None if done.cancelled() else callback())
        if when <= self._monotonic:
            future.set_result(None)
        else:
            heapq.heappush(self._sleepers, (when, next(self._order), future))
            self._arm()

        def cancel() -> None:
            future.cancel()

        return cancel

    @property
    def sleepers(self) -> int:
        """Number of sleeping tasks and scheduled calls that wait on this clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    @property
    def next_wake_seconds(self) -> float | None:
        """Seconds until the first sleeping task or scheduled call is due; None if there is none."""
        self._drop_finished()
        return self._sleepers[0][0] - self._monotonic if self._sleepers else None

    def jump(self, seconds: float) -> None:
        """Move only the wall clock, forwards or backwards; no sleeping task wakes."""
        self._wall += timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        """Move wall clock and monotonic time by `seconds`. Tasks that are then due run in the loop's next iteration."""
        if seconds < 0:
            raise ValueError("time does not go backwards; use jump for the wall clock")
        self._monotonic += seconds
        self._wall += timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    async def run_for(self, seconds: float) -> None:
        """Move time by `seconds`, in steps from one due time to the next; woken tasks run before each further step."""
        end = self._monotonic + seconds
        await self.settle()
        while (wait := self.next_wake_seconds) is not None and self._monotonic + wait <= end:
            self.advance(max(0.0, wait))
            await self.settle()
        self.advance(max(0.0, end - self._monotonic))
        await self.settle()

    async def settle(self) -> None:
        """Let every task that can run now run, without moving time."""
        for _ in range(_SETTLE_ROUNDS):
            await asyncio.sleep(0)

    def _arm(self) -> None:
        if self._auto_advance and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        wait = self.next_wake_seconds
        if wait is not None:
            self.advance(max(0.0, wait))
            if self._sleepers:
                self._arm()

    def _drop_finished(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
