"""`OverrideFiles`: reads and writes what operators asked of pods, and what containers were granted.

The file is written first; the worker's facts follow. One lock for each pod keeps changes in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError, PodUid
from kubeletx.api.names import Event

from .dependencies import PodDependencies
from .model.machine_requests import Orders, after_restart, decode, encode
from .plan.machine_hardware import sized_pod
from .pod_events import PodEvents
from .worker import PodWorker

log = structlog.get_logger(__name__)


class OverrideFiles:
    """The files of all pods."""

    def __init__(self, deps: PodDependencies) -> None:
        self._deps = deps
        self._locks: dict[PodUid, asyncio.Lock] = {}

    async def ensure_read(self, worker: PodWorker) -> Orders:
        """The pod's overrides; read now unless the worker knows them: a command may come before the plan's own read."""
        async with self._lock(worker.uid):
            return await self._read_once(worker)

    async def amend(self, worker: PodWorker, change: Callable[[Orders], Orders]) -> Orders:
        """Change the overrides: on the disk first, then for the plan. Raises Unavailable when they cannot be written."""
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
        """Read unless known; an operation that the earlier process did not end has ended as unknown."""
        if worker.facts.orders is not None:
            return worker.facts.orders
        pod = worker.desired.pod
        try:
            data = await self._deps.directories.read_orders(pod)
            orders = decode(data) if data else Orders()
        except (KubeletxError, ValueError) as error:
            log.warning("Could not read what was asked of a machine", pod=worker.desired.ref, err=str(error))
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
        """Write, or leave it to the next process, which finds the same operations and reports them again."""
        try:
            await self._write(worker, orders)
        except KubeletxError as error:
            log.warning("Could not write what was asked of a machine", pod=worker.desired.ref, err=str(error))

    def _count_again(self, worker: PodWorker, orders: Orders) -> None:
        """Count a machine that was resized by command with what it takes, not with what its spec says."""
        deps, facts = self._deps, replace(worker.facts, orders=orders)
        handle = deps.registry.find(facts.runtime) if facts.runtime is not None else None
        deps.admission.release(worker.uid)
        deps.admission.restore(sized_pod(worker.desired, facts), handle, worker.desired.traits)
