"""`CallGate`: makes every call to a runtime's plugin.

It sets the deadline, limits concurrent calls and counts them; `GuardedCalls` translates the plugin's exceptions and
checks what it returns. The deadline includes the wait for a free slot. A call that did not get a slot in time was not
made, and raises Unavailable. A call that was made and did not return in time raises TimedOut, since it may still take
effect.

A call of a plugin that is not of this repository and runs in the agent's process runs in a task of its own, so that a
coroutine that swallows its cancellation can be abandoned (see `abandoned`). This costs about 13 µs of CPU time, so other
calls are awaited in the caller's task: this repository's plugins pass a cancellation on, and a plugin in a process of
its own is called through this package's code.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from kubeletx.api import KubeletxError, TimedOut, Unavailable
from kubeletx.api.counting import Durations
from kubeletx.cri.tracing import in_span

from .abandoned import AbandonableCalls, plugin_call
from .guarded import GuardedCalls
from .limits import Limits


class PrioritySemaphore:
    """Semaphore of `limit` slots with two queues, for one event loop.

    A released slot goes to the first waiter of the front queue or, if that is empty, of the back queue. Calls that
    continue the start of a pod go before calls that begin one. With one queue, thirty pods that start together would all
    get their sandbox before the first of them gets a container. With two, pods become ready one after another, at the
    same throughput.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._front: deque[asyncio.Future[None]] = deque()
        self._back: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        return self._free > 0

    async def acquire(self, *, behind: bool = False) -> None:
        """Take a slot; wait for one if necessary. `behind`: wait in the back queue instead of the front queue."""
        if self._free > 0:
            self._free -= 1
            return
        queue = self._back if behind else self._front
        slot = asyncio.get_running_loop().create_future()
        queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # the slot was granted at the time of the cancellation
                self.release()
            # `release` has removed it from the queue when it was granted.
            with contextlib.suppress(ValueError):
                queue.remove(slot)
            raise

    def release(self) -> None:
        """Release one slot, to the next waiter if there is one."""
        for queue in (self._front, self._back):
            while queue:
                slot = queue.popleft()
                # Done: its waiter was cancelled and has not run since, so the slot goes to the next one.
                if not slot.done():
                    slot.set_result(None)
                    return
        self._free += 1


T = TypeVar("T")

BUCKETS: tuple[float, ...] = tuple(round(0.005 * 2.5**n, 6) for n in range(14))
"""Upper bounds of `CallCount.durations` in seconds, as in kubelet_runtime_operations_duration_seconds."""


class CallClass(enum.Enum):
    """Class of a call to a runtime, which decides the limit of concurrent calls that applies to it."""

    BEGINNING = "beginning"
    """First call for a pod. It shares the slots of CHANGING but waits behind them: pods that are starting go first."""
    CHANGING = "changing"
    SWITCHING = "switching"
    """Freeze or thaw. It has slots of its own, so that a wake does not wait for starts of pods."""
    SWITCHED = "switched"
    """Read of a unit's status after its freeze or thaw.

    It shares the slots of SWITCHING and waits for all calls of that class: many pods that are frozen or woken together
    change first, and their statuses are read afterwards.
    """
    STOPPING = "stopping"
    QUERY = "query"
    PROBE = "probe"
    """Health, version, open and close calls: no limit and no wait, made even while the runtime is unreachable."""


_BEHIND = (CallClass.BEGINNING, CallClass.SWITCHED)
_READING = (CallClass.QUERY, CallClass.SWITCHED)


@dataclass(slots=True)
class CallCount:
    """Counters of one method. `calls`: number of all calls, including failed ones (`errors`)."""

    calls: int = 0
    errors: int = 0
    durations: Durations = field(default_factory=lambda: Durations(BUCKETS))


class CallGate:
    """Makes every call to the plugin of one runtime, with deadline, limit, error translation and counters.

    `name`: name of the runtime, for messages. `refusal`: returns the error to raise if no call may be made now (the
    runtime is unreachable), else None. `guarded`: runs the plugin's code; None: one that knows only the name.
    `abandons`: calls that do not end when they are cancelled are abandoned.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        refusal: Callable[[], KubeletxError | None] = lambda: None,
        guarded: GuardedCalls | None = None,
        *,
        abandons: bool = True,
    ) -> None:
        self._name = name
        self._refusal = refusal
        self.guarded = guarded or GuardedCalls(name)
        self._abandons = abandons
        self.abandoned = AbandonableCalls(name, limits.grace_seconds)
        changing, switching = PrioritySemaphore(limits.changing), PrioritySemaphore(limits.switching)
        self._semaphores = {
            CallClass.BEGINNING: changing,
            CallClass.CHANGING: changing,
            CallClass.SWITCHING: switching,
            CallClass.SWITCHED: switching,
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
        self,
        method: str,
        call_class: CallClass,
        seconds: float,
        start: Callable[[], Awaitable[T]],
        asked: str | None = None,
    ) -> T:
        """Wait for a slot, call `start` and return its checked result, all within `seconds`.

        `method`: name of the call, for messages, counters and the check. `asked`: id of the object whose status is
        read; None in other calls. Raises only KubeletxError, and CancelledError when the caller is cancelled.
        """
        start = partial(self.guarded.call, method, start, asked)
        if call_class is CallClass.PROBE:
            return await self._timed(method, call_class, seconds, seconds, start)
        if (refusal := self._refusal()) is not None:
            raise refusal
        semaphore = self._semaphores[call_class]
        began = time.monotonic()
        if call_class is CallClass.SWITCHED:
            await asyncio.sleep(0)  # tasks that are about to freeze or thaw take their slots first
        if semaphore.is_free:
            await semaphore.acquire()
        else:
            try:
                async with asyncio.timeout(seconds):
                    await semaphore.acquire(behind=call_class in _BEHIND)
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

    def _run(self, method: str, start: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        start = in_span(method, start)
        if self._abandons:
            return self.abandoned.run(method, start)
        return plugin_call(self._name, method, start)

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
                if call_class not in _READING:
                    return await self._run(method, start)
                self._waiting.add(deadline)
                try:
                    return await self._run(method, start)
                finally:
                    self._waiting.discard(deadline)
        except KubeletxError:
            count.errors += 1
            raise
        except TimeoutError as error:
            count.errors += 1
            if deadline.expired():
                # The runtime became unreachable, which shortens the deadlines of reads: that is the reason,
                # not the time.
                if call_class in _READING and (refusal := self._refusal()) is not None:
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
        finally:
            count.durations.add(time.perf_counter() - began)
