"""`HostShutdown`: ends pods in the order of their priority when the host shuts down, and delays the host meanwhile.

    PrepareForShutdown ─► node NotReady, new pods refused ─► each group: end, wait
                       ─► statuses reported ─► lock released
    PrepareForShutdown false (cancelled) ─► node ready again; the lock is taken again

A pod ends as Failed with reason Terminated. A pod of a cluster stays Failed; a pod of this node's own sources runs
again when the agent starts (`recovery`). If only the agent stops, no pod ends.
Source: kubelet, pkg/kubelet/nodeshutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from kubeletx.api import Clock, EventSink, KubeletxError, ObjectRef, PodUid
from kubeletx.api.names import TERMINATED, Event
from kubeletx.node.shutdown import ShutdownGroup, in_order, total_seconds

from ..active_pods import ActivePods
from ..model.priority import priority_of
from ..specs.labels import grace_seconds

log = structlog.get_logger(__name__)

MESSAGE: Final = "Pod was terminated in response to imminent node shutdown."
RETRY_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.2
TELL_SECONDS: Final = 5.0
"""Longest time for which the shutdown is delayed until all pod statuses are reported."""


class ShutdownLock(Protocol):
    """A lock that delays a shutdown of the host (`node.logind.Logind` implements it)."""

    async def open(self, delay_seconds: int) -> bool:
        """Connect and take the lock; return True if the host is shutting down already.

        `delay_seconds`: time for which the host must wait for the release. Raises Unavailable.
        """
        ...

    async def hold(self) -> None:
        """Take the lock again, after a shutdown that was cancelled."""
        ...

    def release(self) -> None:
        """Release the lock, so that the host continues its shutdown."""
        ...

    async def next(self) -> bool:
        """Wait for the next signal: True when a shutdown begins, False when it is cancelled."""
        ...

    def close(self) -> None:
        """Release the lock and disconnect."""
        ...


class HostShutdown:
    """Ends pods when the host shuts down; `run` is the loop."""

    def __init__(
        self,
        lock: ShutdownLock,
        groups: Sequence[ShutdownGroup],
        *,
        pods: ActivePods,
        clock: Clock,
        events: EventSink,
        node: ObjectRef,
        on_change: Callable[[bool], object],
        has_reported: Callable[[], bool] = lambda: True,
    ) -> None:
        """`groups`: groups of pods by priority, with their grace periods; if all periods are 0, `run` does nothing.

        `on_change`: called with True when a shutdown begins, False when it is cancelled. `has_reported`: returns True if
        all pod statuses are reported.
        """
        self._lock = lock
        self._groups = tuple(groups)
        self._pods = pods
        self._clock = clock
        self._events = events
        self._node = node
        self._on_change = on_change
        self._has_reported = has_reported
        self._problem = ""
        self._is_closed = False
        """True from the start of a shutdown until its cancellation is noticed.

        The shutdown may have been cancelled while the bus was unreachable.
        """

    async def run(self) -> None:
        """Wait for shutdowns of the host until cancelled; reconnect when the bus or logind is unreachable."""
        if not total_seconds(self._groups):
            return
        while True:
            try:
                is_ending = await self._lock.open(total_seconds(self._groups))
                self._problem = ""
                await self._follow(is_ending)
            except KubeletxError as error:
                if str(error) != self._problem:
                    log.warning("Cannot watch for a shutdown of the host", err=str(error))
                self._problem = str(error)
            finally:
                self._lock.close()
            await self._clock.sleep(RETRY_SECONDS)

    async def _follow(self, is_ending: bool) -> None:
        ending: asyncio.Task[None] | None = None
        try:
            while True:
                if is_ending and ending is None:
                    self._is_closed = True
                    ending = asyncio.create_task(self._go_down(), name="host-shutdown")
                elif not is_ending and self._is_closed:
                    if ending is not None:
                        await _cancel(ending)
                    ending = None
                    await self._come_back()
                is_ending = await self._lock.next()
        except KubeletxError:
            if ending is not None:  # the bus ended first: pods must still end
                await ending
            raise
        finally:
            if ending is not None:
                await _cancel(ending)

    async def _go_down(self) -> None:
        log.warning("The host is shutting down; ending pods")
        self._on_change(True)
        self._events.record(
            self._node,
            type="Normal",
            reason=Event.SHUTDOWN,
            message="Shutdown manager detected shutdown event",
        )
        workers = self._pods.workers
        priorities = {uid: priority_of(worker.desired.pod) for uid, worker in workers.items()}
        for group, uids in in_order(self._groups, priorities):
            await self._end(uids, group.shutdown_grace_period_seconds)
        # Before the lock is released: afterwards the host may cut the network at any time.
        await self._wait(self._has_reported, TELL_SECONDS)
        log.warning("Pods have ended; the host may go on")
        self._lock.release()

    async def _end(self, uids: Sequence[PodUid], seconds: int) -> None:
        """End these pods together and wait, at most `seconds`, until they have stopped."""
        for uid in uids:
            worker = self._pods.workers.get(uid)
            if worker is not None:
                # At least 1: with 0 the pod would be killed without SIGTERM.
                grace = max(1, min(seconds, grace_seconds(worker.desired.pod)))
                if not self._pods.end(uid, grace_seconds=grace, reason=TERMINATED, message=MESSAGE):
                    self._pods.hasten(uid, grace_seconds=grace)
        await self._wait(lambda: all(self._pods.has_stopped(uid) for uid in uids), seconds)
        late = [self._pods.workers[uid].desired.ref for uid in uids if not self._pods.has_stopped(uid)]
        if late:
            log.warning("Pods have not ended in time", pods=", ".join(late), seconds=seconds)

    async def _wait(self, is_so: Callable[[], bool], seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while not is_so() and self._clock.monotonic() < end:
            await self._clock.sleep(LOOK_SECONDS)

    async def _come_back(self) -> None:
        log.warning("The shutdown of the host was cancelled")
        self._is_closed = False
        self._on_change(False)
        await self._lock.hold()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
