"""`FigureBackend`: measures the usage of the node and of all pods, for the metrics of the kubelet's API.

Runtimes are called through `UsageBoard`, which caches their answers for a few seconds. Files in /proc and cgroups are
read on a thread. Concurrent callers share one measurement. A pod for which the agent makes no cgroup (a virtual
machine) has only the measurements of its runtime.
"""

from __future__ import annotations

import asyncio

import structlog
from msgspec.structs import replace

from kubeletx.api import Blocking, Clock, KubeletxError, PodUid, UnitState, UnitStats, UnitSummary
from kubeletx.kube.text import quantity
from kubeletx.kube.types.core import Container, EphemeralContainer, Pod, PodStatus
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.host_usage import HostUsage
from kubeletx.node.info import MachineInfo, read_machine
from kubeletx.node.totals import UsageReport
from kubeletx.pods import DiskBoard, NodeContext, PodExecutor, PodManager, PodWorker, VolumeBoard, all_units
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.usage import UsageBoard
from kubeletx.server.metrics.figures import Figures, PodFigures, SystemFigures, UnitFigures, VolumeFigures

from .kernel_figures import KernelPod, KernelUnit, Wanted, read_image_fs, read_kernel

log = structlog.get_logger(__name__)

FRESH_SECONDS = 1.0
"""A measurement younger than this is reused."""


class FigureBackend:
    """Measures the usage of the node and of all pods, from the kernel and the runtimes. Implements `FiguresSource`."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        node_name: str,
        usage: UsageBoard,
        stores: ImageStores,
        manager: PodManager,
        services: PodExecutor,
        context: NodeContext,
        cgroups: PodCgroupManager | None,
        trees: CgroupTrees,
        disks: DiskBoard,
        volumes: VolumeBoard,
        blocking: Blocking,
        clock: Clock,
    ) -> None:
        """`cgroups` None: the agent makes no cgroups for pods."""
        self._node_name = node_name
        self._usage = usage
        self._stores = stores
        self._manager = manager
        self._services = services
        self._context = context
        self._cgroups = cgroups
        self._trees = trees
        self._disks = disks
        self._volumes = volumes
        self._blocking = blocking
        self._clock = clock
        self._machine: MachineInfo | None = None
        self._last: tuple[float, Figures] | None = None
        self._reading: asyncio.Task[Figures] | None = None

    async def figures(self) -> Figures:
        if self._last is not None and self._clock.monotonic() - self._last[0] < FRESH_SECONDS:
            return self._last[1]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="figures")
        return await asyncio.shield(self._reading)

    async def _read(self) -> Figures:
        report = UsageReport(runtimes=await self._usage.read())
        by_pod = report.units_by_pod()
        workers = [w for w in self._manager.workers.values() if w.facts.runtime is not None]
        wanted = [self._wanted(worker) for worker in workers if worker.uid in by_pod]
        shared = self._cgroups.shared() if self._cgroups is not None else ()
        node, kernel = await self._blocking(read_kernel, self._trees, self._context.root_dir, shared, wanted)
        host = node.host
        disk = next(iter(self._stores.disks.values()), None)
        image_fs, image_device = (
            await self._blocking(read_image_fs, disk.path) if disk is not None else (None, "")
        )
        if self._machine is None:
            self._machine = await self._blocking(read_machine)
        pods = [
            _pod(
                worker,
                by_pod.get(worker.uid, ()),
                kernel.get(worker.uid, KernelPod()),
                status,
                volume_figures(self._disks, self._volumes, worker.uid),
            )
            for worker in workers
            if (status := self._services.board.statuses.get(worker.uid)) is not None
        ]
        figures = Figures(
            node_name=self._node_name,
            host=host,
            cpu_nano_cores=self._rate(host),
            image_fs=image_fs,
            pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
            missing=tuple(str(name) for name in report.missing),
            machine=self._machine,
            groups=node.groups,
            system=tuple(self._with_rate(cgroup, host) for cgroup in node.system),
            root_device=node.root_device,
            image_device=image_device,
        )
        self._last = (self._clock.monotonic(), figures)
        return figures

    def _rate(self, host: HostUsage) -> int | None:
        if self._last is None:
            return None
        before = self._last[1].host
        if host.at_ns <= before.at_ns:
            return None
        return (host.cpu_core_ns - before.cpu_core_ns) * 1_000_000_000 // (host.at_ns - before.at_ns)

    def _with_rate(self, cgroup: SystemFigures, host: HostUsage) -> SystemFigures:
        if self._last is None or cgroup.usage.cpu_seconds is None:
            return cgroup
        last = self._last[1]
        before = next((other.usage.cpu_seconds for other in last.system if other.name == cgroup.name), None)
        if before is None or host.at_ns <= last.host.at_ns:
            return cgroup
        spent_ns = (cgroup.usage.cpu_seconds - before) * 1e9
        rate = round(max(spent_ns, 0.0) * 1e9 / (host.at_ns - last.host.at_ns))
        return replace(cgroup, cpu_nano_cores=rate)

    def _wanted(self, worker: PodWorker) -> Wanted:
        pod = worker.desired.pod
        return Wanted(
            uid=worker.uid,
            cgroup=self._cgroup(worker),
            host_network=bool(pod.spec.host_network),
            logs=self._context.log_directory(pod),
            units={unit.id: unit.name for unit in _running(worker)},
        )

    def _cgroup(self, worker: PodWorker) -> str:
        if self._cgroups is None or worker.facts.own.has_own_kernel:
            return ""
        try:
            return self._cgroups.location(worker.desired.pod)
        except KubeletxError as error:
            log.debug("Found no cgroup of a pod", pod=worker.desired.ref, err=str(error))
            return ""


def volume_figures(disks: DiskBoard, volumes: VolumeBoard, uid: PodUid) -> dict[str, VolumeFigures]:
    """Return the last measured usage of each volume of one pod, by volume name."""
    disk = disks.figures.get(uid)
    local = disk.reported if disk is not None else {}
    counted = disk.volumes if disk is not None else {}
    return {
        name: VolumeFigures(
            at=volume.at, fs=volume.fs, use=volume.use, claim=volume.claim, on_node_disk=name in counted
        )
        for name, volume in (*local.items(), *volumes.figures.get(uid, {}).items())
    }


def _running(worker: PodWorker) -> list[UnitSummary]:
    """Return the running units (containers, or the virtual machine) of the pod: the newest of each name, if alive."""
    snapshot = worker.facts.snapshot
    newest: dict[str, UnitSummary] = {}
    for unit in snapshot.units if snapshot is not None else ():
        newest.setdefault(unit.name, unit)
    return [unit for unit in newest.values() if unit.state.is_alive]


def _pod(
    worker: PodWorker,
    measured: tuple[UnitStats, ...],
    kernel: KernelPod,
    status: PodStatus,
    volumes: dict[str, VolumeFigures],
) -> PodFigures:
    pod = worker.desired.pod
    stats = {unit.id: unit for unit in measured}
    running = _running(worker)
    units = tuple(
        _unit(pod, unit, stats[unit.id], kernel, started)
        for unit in running
        if unit.id in stats and (started := _started_at(status, unit.name)) is not None
    )
    awake = [unit for unit in running if unit.state is UnitState.RUNNING]
    return PodFigures(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        runtime=str(worker.facts.runtime),
        started_at=status.start_time.timestamp() if status.start_time is not None else 0.0,
        units=units,
        is_whole={unit.id for unit in awake} <= {unit.id for unit in units},
        interfaces=kernel.interfaces or next((unit.interfaces for unit in measured if unit.interfaces), ()),
        volumes=volumes,
        cgroup=kernel.cgroup,
        cgroup_path=kernel.cgroup_path,
    )


def _unit(pod: Pod, unit: UnitSummary, stats: UnitStats, kernel: KernelPod, started_at: float) -> UnitFigures:
    spec = next((candidate for candidate in all_units(pod) if candidate.name == unit.name), None)
    measured = kernel.units.get(unit.id, KernelUnit())
    return UnitFigures(
        name=unit.name,
        id=unit.id,
        image=spec.image if spec is not None and spec.image else unit.image,
        started_at=started_at,
        stats=stats,
        cgroup=measured.usage,
        cgroup_path=measured.path,
        processes=measured.processes,
        log_bytes=kernel.logs.get(unit.name),
        cpu_limit_millicores=_limit(spec, "cpu"),
        memory_limit_bytes=_limit(spec, "memory"),
    )


def _limit(spec: Container | EphemeralContainer | None, resource: str) -> int:
    if not isinstance(spec, Container):
        return 0
    text = spec.resources.limits.get(resource)
    if text is None:
        return 0
    return quantity.to_millicores(text) if resource == "cpu" else quantity.to_bytes(text)


def _started_at(status: PodStatus, name: str) -> float | None:
    every = (
        *status.init_container_statuses,
        *status.container_statuses,
        *status.ephemeral_container_statuses,
    )
    for container_status in every:
        running = container_status.state.running
        if container_status.name == name and running is not None and running.started_at is not None:
            return running.started_at.timestamp()
    return None
