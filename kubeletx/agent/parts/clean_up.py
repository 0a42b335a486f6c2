"""Components of the agent: the clean-up at its start, and the expansion of volumes.

The clean-up removes the leftovers of pods that an earlier agent process ran and that no longer exist.

The leftovers are records, directories and logs of pods that have neither a worker nor a runtime. Logs are removed only
for pods that have a directory below the agent's root directory, since the log directory may be shared with a kubelet.
Nothing is removed before every pod source has delivered all its pods (is synced), after the loss of the database (a
source may still deliver the pod), or where a volume is still mounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from kubeletx.api import Blocking, Clock, ClusterObjects, KubeletxError, PodUid
from kubeletx.pods import PodDirectories, PodManager, PodRecords
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.volumes.drivers.expansion import VolumeExpansion
from kubeletx.volumes.preparer import VolumePreparer

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .volumes import VolumesAssembly

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 5.0
"""Delay after all sources are synced; queued pods have their workers by then."""
RETRY_SECONDS = 60.0
"""Interval of retries for what could not be removed, such as a mount in use."""


class CleanUp:
    """Task that removes the leftovers of pods that an earlier agent process ran; it ends when all are removed."""

    def __init__(
        self,
        *,
        manager: PodManager,
        registry: RuntimeRegistry,
        volumes: VolumePreparer,
        directories: PodDirectories,
        records: PodRecords,
        blocking: Blocking,
        clock: Clock,
        sources: Callable[[], frozenset[str]],
    ) -> None:
        """`sources`: returns the names of the pod sources that must have delivered all their pods first."""
        self._manager = manager
        self._registry = registry
        self._volumes = volumes
        self._directories = directories
        self._records = records
        self._blocking = blocking
        self._clock = clock
        self._sources = sources
        self._problems: dict[PodUid, str] = {}

    async def run(self) -> None:
        """Wait until every source is synced and every runtime has listed its pods, then remove the leftovers.

        If something cannot be removed, try again every `RETRY_SECONDS`. Returns when nothing is left.
        """
        while not self._sources() <= self._manager.synced_sources:
            await self._manager.wait_synced()
        await self._clock.sleep(SETTLE_SECONDS)
        self._records.prune(self._known())
        await self._registry_listed()
        while not await self._clean():
            await self._clock.sleep(RETRY_SECONDS)

    async def _clean(self) -> bool:
        """Try once to remove the leftovers of every unknown pod; returns True if nothing is left."""
        orphans = await self._volumes.find_orphans(self._known())
        return all([await self._remove(orphan.uid) for orphan in orphans])

    async def _registry_listed(self) -> None:
        await asyncio.gather(*(handle.wait_listed() for handle in self._registry.handles()))

    def _known(self) -> frozenset[PodUid]:
        queued = (desired.uid for desired in self._manager.queued())
        return frozenset((*self._manager.workers, *queued, *self._registry.bindings()))

    async def _remove(self, uid: PodUid) -> bool:
        """Remove the volumes, logs and directory of the pod; returns True if nothing is left to remove.

        Stops, and returns True, if a pod with this UID is known again.
        """
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: self._volumes.release(uid),
            lambda: self._blocking(self._directories.remove_logs, uid),
            lambda: self._volumes.remove_directory(uid),
        )
        try:
            for step in steps:
                if uid in self._known():  # a static pod that is created again has the same UID
                    return True
                await step()
        except (KubeletxError, OSError) as error:
            if self._problems.get(uid) != str(error):
                log.warning(
                    "Failed to remove a directory of a pod that is gone; it is tried again",
                    pod_uid=uid,
                    err=str(error),
                )
            self._problems[uid] = str(error)
            return False
        log.info("Removed a directory of a pod that is gone", pod_uid=uid)
        return True


def make_clean_up(
    ctx: PartContext, runtimes: RuntimesAssembly, volumes: VolumesAssembly, pods: PodsAssembly
) -> None:
    """Build the task that removes leftovers of earlier pods; it ends when everything is removed."""
    clean_up = CleanUp(
        manager=pods.manager,
        registry=runtimes.registry,
        volumes=volumes.preparer,
        directories=pods.directories,
        records=pods.services.records,
        blocking=volumes.files,
        clock=ctx.clock,
        sources=ctx.made.sources,
    )
    ctx.made.add(Part(name="clean-up", tasks=(Task(name="clean-up", run=clean_up.run),)))


def make_expansion(
    ctx: PartContext, node: NodeAssembly, volumes: VolumesAssembly, pods: PodsAssembly
) -> None:
    """Build the task that expands volumes of volume drivers."""

    def cluster_of(uid: PodUid) -> ClusterObjects | None:
        worker = pods.manager.workers.get(uid)
        return ctx.made.objects.get(worker.desired.source) if worker is not None else None

    expansion = VolumeExpansion(
        volumes=volumes.preparer.driven, cluster_of=cluster_of, events=node.events, clock=ctx.clock
    )
    ctx.made.add(Part(name="expansion", tasks=(Task(name="expansion", run=expansion.run),)))
