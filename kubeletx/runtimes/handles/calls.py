"""`CallGate`: every call to a runtime's plugin goes through it.

It sets the deadline, limits concurrent calls, translates foreign exceptions and counts. The deadline includes the wait
for a free slot: a call that never got one was not made and raises Unavailable; one that was made and did not return
raises TimedOut, since it may still take effect.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kubeletx.api import Internal, KubeletxError, TimedOut, Unavailable

from .limits import Limits
from .priority_semaphore import PrioritySemaphore

T = TypeVar("T")

BUCKETS: tuple[float, ...] = tuple(round(0.005 * 2.5**n, 6) for n in range(14))
"""Upper bounds of `CallCount.buckets` in seconds, as in kubelet_runtime_operations_duration_seconds."""


class CallClass(enum.Enum):
    """Class of a call, which decides the limit of concurrent calls that it counts against."""

    BEGINNING = "beginning"
    """First call of a pod: uses the slots of CHANGING but waits behind its calls, so that begun pods go first."""
    CHANGING = "changing"
    STOPPING = "stopping"
    QUERY = "query"
    PROBE = "probe"
    """Has no limit and never waits; is made even while the runtime is unreachable."""


@dataclass(slots=True)
class CallCount:
    """Counters of one method. `buckets[i]` counts calls that took up to `BUCKETS[i]` (not cumulative)."""

    calls: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def add(self, seconds: float) -> None:
        """Count one finished call that took `seconds`."""
        self.seconds += seconds
        for index, bound in enumerate(BUCKETS):
            if seconds <= bound:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1


class CallGate:
    """Makes every call to the plugin of one runtime, with deadline, limit, error translation and counters.

    `refusal`: returns the error to raise if no call may be made now, else None.
    """

    def __init__(
        self, name: str, limits: Limits, refusal: Callable[[], KubeletxError | None] = lambda: None
    ) -> None:
        self._name = name
        self._refusal = refusal
        changing = PrioritySemaphore(limits.changing)
        self._semaphores = {
            CallClass.BEGINNING: changing,
            CallClass.CHANGING: changing,
            CallClass.STOPPING: PrioritySemaphore(limits.stopping),
            CallClass.QUERY: PrioritySemaphore(limits.querying),
        }
        self.counts: dict[str, CallCount] = {}
        self._waiting: set[asyncio.Timeout] = set()

    def give_up_queries(self) -> None:
        """Make all running queries raise Unavailable or TimedOut now; called when the runtime became unreachable.

        Changing calls continue: a later read of the runtime's state shows their effect.
        """
        now = asyncio.get_running_loop().time()
        for deadline in self._waiting:
            if not deadline.expired():
                deadline.reschedule(now)

    async def call(
        self, method: str, call_class: CallClass, seconds: float, start: Callable[[], Awaitable[T]]
    ) -> T:
        """Wait for a slot, call `start` and return its result, all within `seconds`.

        Raises only KubeletxError, and CancelledError when the caller is cancelled. `method`: for messages and counters.
        """
        if call_class is CallClass.PROBE:
            return await self._timed(method, call_class, seconds, seconds, start)
        if (refusal := self._refusal()) is not None:
            raise refusal
        semaphore = self._semaphores[call_class]
        began = time.monotonic()
        if semaphore.is_free:
            await semaphore.acquire()
        else:
            try:
                async with asyncio.timeout(seconds):
                    await semaphore.acquire(behind=call_class is CallClass.BEGINNING)
            except TimeoutError:
                raise Unavailable(
                    f"runtime {self._name}: {method} was not made: too many calls hang ({seconds:g} s)"
                ) from None
        try:
            if (refusal := self._refusal()) is not None:
                raise refusal
            left = seconds - (time.monotonic() - began)
            return await self._timed(method, call_class, seconds, left, start)
        finally:
            semaphore.release()

    async def _timed(
        self,
        method: str,
        call_class: CallClass,
        seconds: float,
        left: float,
        start: Callable[[], Awaitable[T]],
    ) -> T:
        count = self.counts.get(method)
        if count is None:
            count = self.counts[method] = CallCount()
        count.calls += 1
        began = time.perf_counter()
        try:
            async with asyncio.timeout(left) as deadline:
                if call_class is not CallClass.QUERY:
                    return await start()
                self._waiting.add(deadline)
                try:
                    return await start()
                finally:
                    self._waiting.discard(deadline)
        except KubeletxError:
            count.errors += 1
            raise
        except TimeoutError as error:
            count.errors += 1
            if deadline.expired():
                if call_class is CallClass.QUERY and (refusal := self._refusal()) is not None:
                    raise refusal from error
                raise TimedOut(
                    f"runtime {self._name}: {method} did not return within {seconds:g} s"
                ) from error
            raise TimedOut(f"runtime {self._name}: {method}: {error or 'timed out'}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() == 0:
                # This task was not cancelled: grpc.aio raises this when its channel is closed under a call.
                count.errors += 1
                raise Unavailable(f"runtime {self._name}: {method}: the connection was closed") from error
            raise
        except Exception as error:
            count.errors += 1
            raise translate(error, self._name, method) from error
        finally:
            count.add(time.perf_counter() - began)


def translate(error: Exception, runtime: str, method: str) -> KubeletxError:
    """Convert an exception that the plugin did not translate to a KubeletxError."""
    if isinstance(error, KubeletxError):
        return error
    text = f"runtime {runtime}: {method}: {type(error).__name__}: {error}"
    return Unavailable(text) if isinstance(error, OSError | EOFError) else Internal(text)
