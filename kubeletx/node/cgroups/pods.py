"""Cgroups of pods: ``kubepods[/burstable|/besteffort]/pod<uid>`` below ``--cgroup-root``.

    kubepods                limit of all pods together: the capacity minus kubeReserved and systemReserved
    ├── pod<uid>            Guaranteed
    ├── burstable           CPU shares: the sum of its pods' requests
    │   └── pod<uid>
    └── besteffort          CPU shares: the smallest there is
        └── pod<uid>

Runtimes get these paths as cgroup parents; the CRI client converts them to slice names for a runtime that
uses systemd. With the systemd driver the same tree consists of slices, which systemctl creates and systemd
owns. Source: kubelet, pkg/kubelet/cm (R4 of the parity table).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Protocol

import structlog

from kubeletx.api import Blocking, Internal, Resources, TimedOut
from kubeletx.api.counting import LabelledDurations, Metric, histogram
from kubeletx.kube.manifests.units import spec_workload_type
from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from kubeletx.kube.types.core import Pod
from kubeletx.linux.programs import run_blocking

from ..capacity import NodeResources
from .trees import CgroupTrees, cpu_weight

log = structlog.get_logger(__name__)

KUBEPODS = "kubepods"
MIN_SHARES = 2
MAX_SHARES = 262_144
_DIRECTORY = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}


class CgroupDriver(Protocol):
    """Protocol of an object that creates, limits and removes cgroups: `CgroupTrees` or `SystemdSlices`.

    All methods block.
    """

    def create(self, path: str) -> None:
        """Create the cgroup and its missing parents; succeeds if it exists."""
        ...

    def limit(self, path: str, limits: Resources) -> None:
        """Set the fields of `limits` that are not None."""
        ...

    def remove(self, path: str) -> None:
        """Kill the processes in the cgroup and remove it; succeeds if it does not exist."""
        ...


class PodCgroupManager:
    """Creates, limits and removes the cgroups of pods.

    Cgroups that several pods share are changed one at a time.
    """

    def __init__(
        self,
        driver: Callable[[], CgroupDriver],
        *,
        limits_of: Callable[[Pod], Resources],
        blocking: Blocking,
        root: str = "",
        per_qos: bool = True,
    ) -> None:
        """`driver`: called once, when a cgroup is first needed.

        `limits_of`: returns the limits of a pod's own cgroup. `root`: path of the cgroup above kubepods.
        `per_qos` False: pods' cgroups are directly below `root`, without kubepods and QoS classes.
        """
        self._choose_driver = driver
        self._limits_of = limits_of
        self._blocking = blocking
        self._root = "/".join(part for part in root.split("/") if part)
        self._per_qos = per_qos
        self._burstable: dict[str, int] = {}
        self._burstable_sum = 0
        self._burstable_written: int | None = None
        self._made: set[str] = set()
        self._lock = asyncio.Lock()
        self._prepared = False
        self.durations = LabelledDurations()
        """Durations of the changes, by the kubelet's operation names: create, update, destroy."""

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric of the durations."""
        yield histogram(
            "kubelet_cgroup_manager_duration_seconds",
            "Duration of a change of a pod's cgroup.",
            self.durations,
            "operation_type",
        )

    @cached_property
    def _driver(self) -> CgroupDriver:
        return self._choose_driver()

    async def prepare(self, limit: NodeResources | None = None) -> None:
        """Create the cgroups that pods share. `limit`: for all pods together, set on kubepods; None: no limit."""
        async with self._lock:
            await self._timed("create", self._prepare, limit)
            self._prepared = True

    async def resume(self, pods: Iterable[Pod]) -> None:
        """Set the CPU shares of the Burstable class to the sum over pods that an earlier agent process started.

        `pods`: pods of any class.
        """
        if not self._per_qos:
            return
        async with self._lock:
            for pod in pods:
                if qos_class(pod.spec) == BURSTABLE:
                    self._count(pod.metadata.uid, self._limits_of(pod).cpu_shares or MIN_SHARES)
            await self._write_burstable()

    async def create(self, pod: Pod) -> str:
        """Create the pod's cgroup and set its limits; if the cgroup exists, only set the limits.

        Returns the cgroup's path with a leading slash: the cgroup parent of the pod's containers or machine.
        """
        if not self._prepared:
            await self.prepare()
        path, limits = self.path(pod), self._limits_of(pod)
        await self._timed("update" if path in self._made else "create", self._create, path, limits)
        self._made.add(path)
        if self._per_qos and qos_class(pod.spec) == BURSTABLE:
            # After the pod's cgroup: a create that fails must not leave its share in the sum.
            await self._share(pod.metadata.uid, limits.cpu_shares or MIN_SHARES)
        return f"/{path}"

    async def remove(self, pod: Pod) -> None:
        """Kill the pod's remaining processes and remove its cgroup; succeeds if there is none."""
        for path in self._paths(pod):
            await self._timed("destroy", self._driver.remove, path)
            self._made.discard(path)
        if pod.metadata.uid in self._burstable:
            await self._share(pod.metadata.uid, None)

    async def _timed(self, operation: str, function: Callable[..., None], *args: object) -> None:
        began = time.perf_counter()
        try:
            await self._blocking(function, *args)
        finally:
            self.durations.add(time.perf_counter() - began, operation)

    def _paths(self, pod: Pod) -> list[str]:
        """Return the possible paths of the pod's cgroup.

        If the pod's spec is unknown, its QoS class is unknown too: returns a path for each class.
        """
        own = self.path(pod)  # raises for a UID that would name another cgroup
        if not self._per_qos or pod.spec.containers or spec_workload_type(pod) is not None:
            return [own]
        return [self._join(directory, f"pod{pod.metadata.uid}") for directory in _DIRECTORY.values()]

    def path(self, pod: Pod) -> str:
        """Return the path of the pod's cgroup, without a leading slash. Raises Internal for an unsafe pod UID."""
        uid = pod.metadata.uid
        if not uid or "/" in uid or uid.startswith("."):
            raise Internal(f"pod UID {uid!r} cannot name a cgroup")
        parent = _DIRECTORY[qos_class(pod.spec)] if self._per_qos else ""
        return self._join(parent, f"pod{uid}")

    def location(self, pod: Pod) -> str:
        """Return the path of the pod's cgroup below the cgroup mount point, without a leading slash.

        With the systemd driver its parts are the names of slices; with the cgroupfs driver it is the same as `path`.
        """
        path = self.path(pod)
        return slice_path(path) if isinstance(self._driver, SystemdSlices) else path

    def shared(self) -> tuple[str, ...]:
        """Return the paths of the cgroups that several pods share: first kubepods, then the QoS classes.

        Like the path of `location`, they are relative to the cgroup mount point, without leading slashes.
        """
        top = self._join()
        if not top:
            return ()
        paths = [top, *(self._join(_DIRECTORY[qos]) for qos in (BURSTABLE, BEST_EFFORT) if self._per_qos)]
        return (
            tuple(slice_path(path) for path in paths)
            if isinstance(self._driver, SystemdSlices)
            else tuple(paths)
        )

    def _join(self, *parts: str) -> str:
        top = KUBEPODS if self._per_qos else ""
        return "/".join(part for part in (self._root, top, *parts) if part)

    def _prepare(self, limit: NodeResources | None) -> None:
        top = self._join()
        if not top:
            return
        self._driver.create(top)
        if limit is not None:
            self._limit_all(top, limit)
        if self._per_qos:
            for qos in (BURSTABLE, BEST_EFFORT):
                self._driver.create(self._join(_DIRECTORY[qos]))
            self._driver.limit(self._join(_DIRECTORY[BEST_EFFORT]), Resources(cpu_shares=MIN_SHARES))

    def _limit_all(self, top: str, limit: NodeResources) -> None:
        """Set the limit of all pods together on the cgroup `top`.

        A failure is only logged: cgroup v1 refuses a limit below what running pods use now.
        """
        limits = Resources(
            cpu_shares=_shares(limit.cpu_millicores * 1024 // 1000), memory_limit_bytes=limit.memory_bytes
        )
        try:
            self._driver.limit(top, limits)
        except Internal as error:
            log.warning(
                "Failed to limit all pods together; lower kubeReserved and systemReserved, or end pods and start again",
                err=str(error),
            )

    def _create(self, path: str, limits: Resources) -> None:
        self._driver.create(path)
        self._driver.limit(path, limits)

    async def _share(self, uid: str, shares: int | None) -> None:
        self._count(uid, shares)  # before the lock: one write is then enough for all pods that wait for it
        async with self._lock:
            await self._write_burstable()

    def _count(self, uid: str, shares: int | None) -> None:
        self._burstable_sum -= self._burstable.pop(uid, 0)
        if shares is not None:
            self._burstable[uid] = shares
            self._burstable_sum += shares

    async def _write_burstable(self) -> None:
        together = _shares(self._burstable_sum)
        if together != self._burstable_written:  # after a failed write, the next change of a pod writes again
            path = self._join(_DIRECTORY[BURSTABLE])
            await self._timed("update", self._driver.limit, path, Resources(cpu_shares=together))
            self._burstable_written = together


class SystemdSlices:
    """The `CgroupDriver` named ``systemd``: cgroups are slices, which systemctl creates and limits."""

    def __init__(
        self,
        trees: CgroupTrees,
        *,
        run: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """`run`: function that runs a command and raises Internal if it fails; None: a subprocess."""
        self._trees = trees
        self._run = run or _run

    def create(self, path: str) -> None:
        """Start the slice for a cgroup path; systemd creates its cgroup and its parent slices."""
        self._run(["systemctl", "start", slice_name(path)])

    def limit(self, path: str, limits: Resources) -> None:
        """Set the slice's properties for the limits that are not None; they are kept until the next boot."""
        # Not written into the files: systemd overwrites the files of its own units.
        properties = slice_properties(limits, self._trees.version)
        if properties:
            self._run(["systemctl", "set-property", "--runtime", slice_name(path), *properties])

    def remove(self, path: str) -> None:
        """Stop the slice, which ends the processes in it, and remove its cgroup if systemd did not."""
        self._run(["systemctl", "stop", slice_name(path)])
        self._trees.remove(slice_path(path))


def make_driver(name: str, trees: CgroupTrees) -> CgroupDriver:
    """Return the cgroup driver called `name`: ``cgroupfs`` (`trees` itself) or ``systemd``."""
    return SystemdSlices(trees) if name == "systemd" else trees


def slice_name(path: str) -> str:
    """Return the name of the systemd slice for a cgroup path.

    Example: ``kubepods-burstable-pod1_2.slice`` for ``kubepods/burstable/pod1-2``.
    """
    return "-".join(part.replace("-", "_") for part in path.split("/") if part) + ".slice"


def slice_path(path: str) -> str:
    """Return the directory of the slice for a cgroup path, relative to the cgroup mount point.

    Example: ``kubepods.slice/kubepods-burstable.slice`` for ``kubepods/burstable``.
    """
    parts = [part.replace("-", "_") for part in path.split("/") if part]
    return "/".join("-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))


def slice_properties(limits: Resources, version: int) -> list[str]:
    """Return the limits that are not None as systemd properties, each as ``Name=value``.

    `version`: version of the cgroup layout, 1 or 2, which have different property names.
    """
    properties: list[str] = []
    if limits.cpu_shares is not None:
        properties.append(
            f"CPUWeight={cpu_weight(limits.cpu_shares)}" if version == 2 else f"CPUShares={limits.cpu_shares}"
        )
    if limits.cpu_quota_us is not None and limits.cpu_quota_us > 0:
        period = limits.cpu_period_us or 100_000
        properties += [f"CPUQuota={limits.cpu_quota_us * 100 / period:g}%", f"CPUQuotaPeriodSec={period}us"]
    if limits.memory_limit_bytes is not None:
        name = "MemoryMax" if version == 2 else "MemoryLimit"
        properties.append(
            f"{name}={limits.memory_limit_bytes if limits.memory_limit_bytes > 0 else 'infinity'}"
        )
    if limits.pids_limit is not None:
        properties.append(f"TasksMax={limits.pids_limit if limits.pids_limit > 0 else 'infinity'}")
    return properties


def _shares(shares: int) -> int:
    return max(MIN_SHARES, min(MAX_SHARES, shares))


_COMMAND_SECONDS = 30.0


def _run(command: Sequence[str]) -> None:
    try:
        result = run_blocking(command, seconds=_COMMAND_SECONDS)
    except (OSError, TimedOut) as error:
        raise Internal(f"{' '.join(command)}: {error}") from error
    if result.exit_code != 0:
        raise Internal(f"{' '.join(command)}: {result.text or f'exit status {result.exit_code}'}")
