"""`Evictor`: checks every ten seconds which resources the node is short of, and ends one pod at a time to relieve it.

    signals ─► thresholds ─┬─► conditions of the node, admission
                           └─► pods over their own limits ─► for a disk: dead containers, unused images
                                                                       └─► first pod by rank

Dead containers and images are removed only on the disk that is short. After an eviction the next check waits until the
pod has stopped. Decisions are in `thresholds`, `rank` and `limits`; this file reads, waits and acts. Source: kubelet,
pkg/kubelet/eviction/eviction_manager.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import (
    Blocking,
    Clock,
    EventSink,
    KubeletxError,
    ObjectRef,
    PodUid,
    RuntimeName,
    UnitState,
    UnitStats,
)
from kubeletx.api.names import EVICTED, Event
from kubeletx.kube.types.core import Pod
from kubeletx.node.pressure import ImageDisk, NodeMeasure, measure_node
from kubeletx.node.readiness import Pressure
from kubeletx.node.thresholds import (
    TRANSITION_SECONDS,
    MetThreshold,
    Observation,
    Threshold,
    ThresholdState,
    step,
)
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.images.stores import ImageStores, StoreDisk
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.runtimes.usage import UsageBoard
from kubeletx.volumes.disk_usage import DiskUse

from ..active_pods import ActivePods
from ..admission.pressure import conditions
from ..model.roles import pod_ref
from ..plan.progress import has_ended
from ..specs.labels import grace_seconds
from ..worker import PodWorker
from . import limits
from .disks import DiskBoard
from .rank import is_disk, low_on, rank, resource_of
from .use import ContainerUse, PodUse

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
STOP_SECONDS: Final = 30.0
"""Longest time for which the next check is delayed until an evicted pod has stopped."""
HARD_GRACE_SECONDS: Final = 1
STORES_SECONDS: Final = 300.0
"""Interval between queries of the image stores for their data directories."""


class EvictionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the evictor.

    `hold_seconds`: time for which a pressure is still reported after it ended. `max_grace_seconds`: longest grace
    period of a soft eviction. `local_limits`: True if pods that exceed a disk limit of their own are ended.
    """

    thresholds: tuple[Threshold, ...] = ()
    hold_seconds: float = TRANSITION_SECONDS
    max_grace_seconds: int = 0
    local_limits: bool = True


class EvictedNode(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the node that the evictor uses to measure pods, free disk space and end pods.

    `root_dir`: the agent's root directory, on the node's file system. `ref`: the Node object, for events. `pids`:
    returns the number of processes of a pod; None if unknown.
    """

    root_dir: Path
    ref: ObjectRef
    pods: ActivePods
    registry: RuntimeRegistry
    stores: ImageStores
    collector: ImageCollector
    usage: UsageBoard
    disks: DiskBoard
    pids: Callable[[Pod], int | None] = lambda _pod: None
    evictions: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of evictions by signal."""
    measure: NodeMeasure = measure_node


class Evictor:
    """Evicts pods when the node is under pressure or when pods exceed their own disk limits; `run` is the loop."""

    def __init__(
        self,
        node: EvictedNode,
        policy: EvictionPolicy,
        *,
        clock: Clock,
        blocking: Blocking,
        events: EventSink,
        on_pressure: Callable[[Pressure], object],
        wait: Callable[[float], Awaitable[object]] | None = None,
    ) -> None:
        """`on_pressure`: called with the node's pressure whenever it changes.

        `wait`: sleeps for the given seconds, but returns earlier if a check is due; None: use the clock's sleep.
        """
        self._node = node
        self._policy = policy
        self._clock = clock
        self._blocking = blocking
        self._events = events
        self._on_pressure = on_pressure
        self._wait = wait or clock.sleep
        self._state = ThresholdState()
        self._pressure = Pressure()
        self._mounts: dict[RuntimeName, tuple[str, ...]] = {}
        self._mounts_until = 0.0

    async def run(self) -> None:
        """Check the node and evict pods, every `LOOK_SECONDS`, until cancelled."""
        while True:
            ended = await self.look()
            if ended:
                await self._stopped(ended)
            else:
                await self._wait(LOOK_SECONDS)

    async def look(self) -> Sequence[PodUid]:
        """Read all eviction signals once and act on them; return the UIDs of the pods that were ended."""
        mono = self._clock.monotonic()
        look = step(
            self._state,
            self._policy.thresholds,
            await self._observe(),
            mono=mono,
            hold_seconds=self._policy.hold_seconds,
        )
        self._state = look.state
        if look.pressure != self._pressure:
            self._pressure = look.pressure
            log.warning("Changed node pressure", conditions=",".join(conditions(look.pressure)))
            self._on_pressure(look.pressure)
        over = await self._end_over_limits() if self._policy.local_limits else []
        if over:
            # Pods over their own limits first: their end may relieve the node, and no other pod has to be evicted.
            return over
        for met in look.acting:
            self._record_met(met)
            if is_disk(met.threshold.signal) and await self._relieve(met):
                return ()
            uid = await self._evict_first(met)
            # One pod per round, as in the kubelet: the next measurement shows if that was enough.
            if uid is not None:
                return (uid,)
        return ()

    # --- what the node is short of ---

    async def _observe(self) -> Sequence[Observation]:
        await self._find_mounts()
        disks, observations = await self._read()
        space = {seen.place: seen for seen in observations if seen.signal == "imagefs.available"}
        self._node.stores.disks = {
            name: StoreDisk(disk.path, space[disk.place].capacity, space[disk.place].available)
            for disk in disks
            if disk.place in space
            for name in disk.runtimes
        }
        return observations

    async def _read(self) -> tuple[tuple[ImageDisk, ...], Sequence[Observation]]:
        """Read the image file systems and the eviction signals; `_find_mounts` must have been called before."""
        return await self._blocking(
            self._node.measure, self._node.root_dir, dict(self._mounts), self._clock.monotonic()
        )

    async def _find_mounts(self) -> None:
        """Query the image stores, at intervals, for the directories of their data.

        For a store that does not answer, the last known directories are kept.
        """
        local = self._local_runtimes()
        now = self._clock.monotonic()
        if now < self._mounts_until and local == list(self._mounts):
            return
        stores, missing = await self._node.stores.all()
        mounts = {name: mount for name, mount in self._mounts.items() if name in local}
        for store in stores:
            members = [name for name in store.members if name in local]
            if not members:
                continue
            try:
                info = await store.info()
            except KubeletxError as error:
                log.debug("Image store did not report its location", store=store.id, err=str(error))
                continue
            mounts.update(
                dict.fromkeys(members, tuple(filesystem.mountpoint for filesystem in info.filesystems))
            )
        self._mounts = {name: mounts.get(name, ()) for name in local}
        is_complete = not missing and all(self._mounts.values())
        self._mounts_until = now + (STORES_SECONDS if is_complete else LOOK_SECONDS)

    def _local_runtimes(self) -> list[RuntimeName]:
        handles = self._node.registry.handles()
        return [one.name for one in handles if one.traits is not None and not one.traits.remote]

    # --- pods ---

    def _active(self) -> Iterator[PodWorker]:
        """Yield pods that run on this machine and whose runtime can end them now."""
        local = self._local_runtimes()
        for worker in self._node.pods.workers.values():
            handle = self._node.registry.find(worker.facts.runtime) if worker.facts.runtime else None
            if handle is None or handle.name not in local or not handle.state.reachable:
                continue
            if worker.desired.deletion is None and not has_ended(worker.desired, worker.facts):
                yield worker

    async def _uses(self, workers: Sequence[PodWorker], *, with_runtimes: bool) -> list[PodUse]:
        units: dict[PodUid, list[UnitStats]] = {}
        for runtime in await self._node.usage.read() if with_runtimes else ():
            for unit in runtime.units if runtime.answered else ():
                units.setdefault(unit.uid, []).append(unit)
        disks, _ = await self._read()
        places = {name: disk.place for disk in disks for name in disk.runtimes}
        return [self._use(worker, units.get(worker.uid, []), places) for worker in workers]

    def _use(
        self, worker: PodWorker, units: Sequence[UnitStats], places: Mapping[RuntimeName, str]
    ) -> PodUse:
        disk = self._node.disks.figures.get(worker.uid)
        logs = disk.logs if disk is not None else {}
        by_name = {unit.name: _container_use(unit, logs.get(unit.name)) for unit in units}
        for name, used in logs.items():
            by_name.setdefault(name, ContainerUse(name=name, logs=used))
        runtime = worker.facts.runtime
        return PodUse(
            uid=worker.uid,
            pod=worker.desired.pod,
            source=worker.desired.traits,
            containers=tuple(by_name.values()),
            volumes=disk.volumes if disk is not None else {},
            other=disk.other if disk is not None else DiskUse(),
            image_place=places.get(runtime) if runtime is not None else None,
            has_own_disk=worker.facts.own.has_own_kernel,
        )

    # --- relief ---

    async def _relieve(self, met: MetThreshold) -> bool:
        """Remove dead containers and unused images on the disk that is short.

        Return True if the threshold is no longer met.
        """
        disks, _ = await self._read()
        on_it = {name for disk in disks if disk.place == met.observation.place for name in disk.runtimes}
        if not on_it:
            return False
        await self._remove_dead(on_it)
        stores, _missing = await self._node.stores.all()
        for store in stores:
            if on_it & store.members.keys():
                await self._node.collector.relieve(store)
        _, observations = await self._read()
        again = step(self._state, (met.threshold,), observations, mono=self._clock.monotonic())
        return met.key not in again.state.acting

    async def _remove_dead(self, runtimes: set[RuntimeName]) -> None:
        """Remove the ended containers of pods that have ended; the pods' statuses have their data already."""
        for worker in list(self._node.pods.workers.values()):
            runtime = worker.facts.runtime
            if runtime not in runtimes or not has_ended(worker.desired, worker.facts):
                continue
            handle = self._node.registry.find(runtime) if runtime is not None else None
            snapshot = worker.facts.snapshot
            if handle is None or snapshot is None or worker.desired.is_ending:
                continue
            dead = [unit for unit in snapshot.units if unit.state is UnitState.EXITED]
            try:
                for unit in dead:
                    await handle.remove_unit(unit.id)
                if dead:
                    await handle.look(worker.uid)
            except KubeletxError as error:
                log.warning("Failed to remove a dead container", pod=worker.desired.ref, err=str(error))

    async def _end_over_limits(self) -> list[PodUid]:
        workers = [worker for worker in self._active() if limits.has_limits(worker.desired.pod)]
        if not workers:
            return []
        has_layers = any(limits.has_storage_limits(worker.desired.pod) for worker in workers)
        ended = []
        for use in await self._uses(workers, with_runtimes=has_layers):
            over = limits.exceeded(use)
            if over is None:
                continue
            if self._end(use, HARD_GRACE_SECONDS, over.signal, over.message, over_own_limit=True):
                ended.append(use.uid)
        return ended

    async def _evict_first(self, met: MetThreshold) -> PodUid | None:
        workers = list(self._active())
        if is_disk(met.threshold.signal):
            await self._node.disks.refresh(max_age_seconds=LOOK_SECONDS)
        uses = await self._uses(workers, with_runtimes=True)
        if resource_of(met.threshold.signal) == "pids":
            uses = await self._blocking(partial(_with_pids, uses, self._node.pids))
        for use in rank(uses, met):
            if self._end(use, self._grace(met, use.pod), met.threshold.signal, low_on(met, use)):
                return use.uid
        log.warning("Found no pod to evict", signal=met.threshold.signal, place=met.observation.place)
        return None

    def _grace(self, met: MetThreshold, pod: Pod) -> int:
        if met.threshold.is_hard:
            return HARD_GRACE_SECONDS
        return max(HARD_GRACE_SECONDS, min(self._policy.max_grace_seconds, grace_seconds(pod)))

    def _end(
        self, use: PodUse, grace: int, signal: str, message: str, *, over_own_limit: bool = False
    ) -> bool:
        if not self._node.pods.end(
            use.uid, grace_seconds=grace, reason=EVICTED, message=message, over_own_limit=over_own_limit
        ):
            return False
        self._node.evictions[signal] += 1
        self._events.record(pod_ref(use.pod), type="Warning", reason=Event.EVICTED, message=message)
        return True

    def _record_met(self, met: MetThreshold) -> None:
        self._events.record(
            self._node.ref,
            type="Warning",
            reason=Event.EVICTION_THRESHOLD_MET,
            message=f"Attempting to reclaim {resource_of(met.threshold.signal)}",
        )

    async def _stopped(self, uids: Sequence[PodUid]) -> None:
        """Wait until nothing of these pods runs, at most `STOP_SECONDS`."""
        end = self._clock.monotonic() + STOP_SECONDS
        while self._clock.monotonic() < end:
            await self._clock.sleep(1.0)
            if all(self._node.pods.has_stopped(uid) for uid in uids):
                return


def _container_use(unit: UnitStats, logs: DiskUse | None) -> ContainerUse:
    working_set = unit.memory_working_set_bytes
    rootfs = None
    if unit.fs_used_bytes is not None:
        rootfs = DiskUse(bytes=unit.fs_used_bytes, inodes=unit.fs_inodes_used or 0)
    return ContainerUse(
        name=unit.name,
        memory_bytes=unit.memory_usage_bytes if working_set is None else working_set,
        rootfs=rootfs,
        logs=logs,
    )


def _with_pids(uses: Sequence[PodUse], pids: Callable[[Pod], int | None]) -> list[PodUse]:
    return [msgspec.structs.replace(use, pids=pids(use.pod)) for use in uses]
