"""`OverrideFiles`: reads and writes each pod's overrides file: operators' requests and resources granted by a resize.

A change is written to the file before it is set in the worker's facts. One lock per pod keeps changes in order.
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
from .workloads.overrides import PodOverrides, decode, encode, overrides_of, without_begun
from .workloads.table import workload_of

log = structlog.get_logger(__name__)


class OverrideFiles:
    """Reads and writes the overrides files of all pods (`workloads.overrides` describes their content)."""

    def __init__(self, deps: PodDependencies) -> None:
        self._deps = deps
        self._locks: dict[PodUid, asyncio.Lock] = {}

    async def ensure_read(self, worker: PodWorker) -> PodOverrides:
        """Return the pod's overrides; read the file first if this process has not read it yet.

        An operator's command may need the overrides before the worker's own plan has read them. Raises Unavailable if the
        file cannot be read; a damaged file counts as empty.
        """
        async with self._lock(worker.uid):
            return await self._read_once(worker)

    async def amend(self, worker: PodWorker, change: Callable[[PodOverrides], PodOverrides]) -> PodOverrides:
        """Apply `change` to the overrides, write them to the disk, set them in the worker's facts, and return them.

        Raises Unavailable, and changes nothing, if they cannot be read or written.
        """
        async with self._lock(worker.uid):
            after = change(await self._read_once(worker))
            if after != worker.facts.overrides:
                await self._write(worker, after)
                worker.set_overrides(after)
        return after

    def forget(self, uid: PodUid) -> None:
        """Drop the lock of a pod that is gone."""
        self._locks.pop(uid, None)

    def _lock(self, uid: PodUid) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _read_once(self, worker: PodWorker) -> PodOverrides:
        """Read the file unless that was done; set operations that an earlier process left unfinished to UNKNOWN."""
        known = overrides_of(worker.facts)
        if known is not None:
            return known
        data = await self._deps.directories.read_overrides(worker.desired.pod)
        try:
            overrides = decode(data) if data else PodOverrides()
        except ValueError as error:
            log.warning("Failed to decode the requests for a pod", pod=worker.desired.ref, err=str(error))
            overrides = PodOverrides()
        overrides, lost = without_begun(overrides, self._deps.clock.now())
        events = PodEvents(self._deps.events, worker.desired.pod)
        for operation in lost:
            what = f"{operation.verb} {operation.detail}".strip()
            events.warning(
                Event.OPERATION_UNKNOWN, f"{what} begun at {operation.begun_at:%H:%M:%S}: {operation.message}"
            )
        if lost:
            await self._write_quietly(worker, overrides)
        if overrides.resources:
            self._count_again(worker, overrides)
        worker.set_overrides(overrides)
        return overrides

    async def _write(self, worker: PodWorker, overrides: PodOverrides) -> None:
        await self._deps.directories.write_overrides(worker.desired.pod, encode(overrides))

    async def _write_quietly(self, worker: PodWorker, overrides: PodOverrides) -> None:
        """Write the file; only log a failure: the next process then finds and reports the same operations again."""
        try:
            await self._write(worker, overrides)
        except KubeletxError as error:
            log.warning("Failed to write the requests for a pod", pod=worker.desired.ref, err=str(error))

    def _count_again(self, worker: PodWorker, overrides: PodOverrides) -> None:
        """Reserve the resources that an operator's resize gave the pod, instead of its spec's requests."""
        deps, facts = self._deps, replace(worker.facts, overrides=overrides)
        handle = deps.registry.find(facts.runtime) if facts.runtime is not None else None
        deps.admission.release(worker.uid)
        deps.admission.restore(
            workload_of(facts).counted_pod(worker.desired, facts),
            handle.traits if handle is not None else None,
            worker.desired.traits,
        )
