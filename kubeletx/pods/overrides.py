"""`OverrideFiles`: reads and writes operators' requests and granted resources of pods.

The file is written first; the worker's facts follow. One lock per pod keeps changes in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError, PodUid
from kubeletx.api.names import Event

from .dependencies import PodDependencies
from .pod_events import PodEvents
from .worker import PodWorker
from .workloads.requests import Orders, after_restart, decode, encode, orders_of
from .workloads.table import workload_of

log = structlog.get_logger(__name__)


class OverrideFiles:
    """The orders files of all pods."""

    def __init__(self, deps: PodDependencies) -> None:
        self._deps = deps
        self._locks: dict[PodUid, asyncio.Lock] = {}

    async def ensure_read(self, worker: PodWorker) -> Orders:
        """The pod's overrides; reads the file now if the worker has not: a command may come before the plan's own read."""
        async with self._lock(worker.uid):
            return await self._read_once(worker)

    async def amend(self, worker: PodWorker, change: Callable[[Orders], Orders]) -> Orders:
        """Change the overrides on disk, then in the worker's facts. Raises Unavailable if they cannot be written."""
        async with self._lock(worker.uid):
            after = change(await self._read_once(worker))
            if after != worker.facts.orders:
                await self._write(worker, after)
                worker.set_orders(after)
        return after

    def forget(self, uid: PodUid) -> None:
        """Drop the lock of a pod that is gone."""
        self._locks.pop(uid, None)

    def _lock(self, uid: PodUid) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _read_once(self, worker: PodWorker) -> Orders:
        """Read the file unless that was done; an operation that an earlier process left unfinished becomes unknown."""
        known = orders_of(worker.facts)
        if known is not None:
            return known
        pod = worker.desired.pod
        try:
            data = await self._deps.directories.read_orders(pod)
            orders = decode(data) if data else Orders()
        except (KubeletxError, ValueError) as error:
            log.warning("Failed to read the requests for a pod", pod=worker.desired.ref, err=str(error))
            orders = Orders()
        orders, lost = after_restart(orders, self._deps.clock.now())
        events = PodEvents(self._deps.events, worker.desired.pod)
        for one in lost:
            what = f"{one.verb} {one.detail}".strip()
            events.warning(Event.OPERATION_UNKNOWN, f"{what} begun at {one.begun_at:%H:%M:%S}: {one.message}")
        if lost:
            await self._write_quietly(worker, orders)
        if orders.resources:
            self._count_again(worker, orders)
        worker.set_orders(orders)
        return orders

    async def _write(self, worker: PodWorker, orders: Orders) -> None:
        await self._deps.directories.write_orders(worker.desired.pod, encode(orders))

    async def _write_quietly(self, worker: PodWorker, orders: Orders) -> None:
        """Write the file; a failure is ignored: the next process finds the same operations and reports them again."""
        try:
            await self._write(worker, orders)
        except KubeletxError as error:
            log.warning("Failed to write the requests for a pod", pod=worker.desired.ref, err=str(error))

    def _count_again(self, worker: PodWorker, orders: Orders) -> None:
        """Count a pod that was resized by command with what it takes, not with what its spec says."""
        deps, facts = self._deps, replace(worker.facts, orders=orders)
        handle = deps.registry.find(facts.runtime) if facts.runtime is not None else None
        deps.admission.release(worker.uid)
        deps.admission.restore(
            workload_of(facts).counted_pod(worker.desired, facts), handle, worker.desired.traits
        )
