"""`SessionReadings`: reads CPU, memory and log positions of pods with open sessions, for `SessionUsage`.

A pod with a cgroup of the agent is read from the kernel; another one, such as a virtual machine, from its runtime.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from kubeletx.api import (
    Blocking,
    KubeletxError,
    PodUid,
    RuntimeName,
    SupportsStats,
    TimedOut,
    UnitStats,
    names,
)
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.cgroups.usage import read_cgroup
from kubeletx.pods import NodeContext, PodManager, PodWorker
from kubeletx.runtimes.registry import RuntimeRegistry

if TYPE_CHECKING:
    from kubeletx.sessions.meter import LogPosition, PodReading

log = structlog.get_logger(__name__)

_LOG: Final = re.compile(r"(\d+)\.log")
_STATS_SECONDS: Final = 5.0
"""Deadline of the query for one pod."""
_ALL_SECONDS: Final = 8.0
"""Deadline of the queries of one reading; the caller's is later, so that what was read is not lost."""


class SessionReadings:
    """Reads pods of this node, as `sessions.usage.ReadPods`."""

    def __init__(
        self,
        *,
        manager: PodManager,
        context: NodeContext,
        cgroups: PodCgroupManager | None,
        trees: CgroupTrees,
        registry: RuntimeRegistry,
        blocking: Blocking,
    ) -> None:
        """`cgroups` None: the agent makes no cgroups for pods."""
        self._manager = manager
        self._context = context
        self._cgroups = cgroups
        self._trees = trees
        self._registry = registry
        self._blocking = blocking

    async def read(self, uids: Set[PodUid]) -> Mapping[PodUid, PodReading]:
        """Read the pods that are on this node."""
        workers = [worker for uid in uids if (worker := self._manager.workers.get(uid)) is not None]
        places = {
            worker.uid: (self._cgroup(worker), self._context.log_directory(worker.desired.pod))
            for worker in workers
        }
        readings: dict[PodUid, PodReading] = await self._blocking(_read_pods, self._trees, places)
        by_runtime: dict[RuntimeName, list[PodUid]] = {}
        for worker in workers:
            if readings[worker.uid].cpu_seconds is None and worker.facts.runtime is not None:
                by_runtime.setdefault(worker.facts.runtime, []).append(worker.uid)
        try:
            async with asyncio.timeout(_ALL_SECONDS):
                await asyncio.gather(*(self._ask(*item, readings) for item in by_runtime.items()))
        except TimeoutError:
            log.debug("Failed to read the usage of all pods with sessions in time")
        return readings

    async def _ask(
        self, runtime: RuntimeName, uids: Iterable[PodUid], readings: dict[PodUid, PodReading]
    ) -> None:
        """Add the present usage of pods to `readings`, one after the other, until the runtime fails.

        A pod whose query times out is left out. A value of `UsageBoard`, which is up to five seconds old, would charge a session for the time before it.
        """
        handle = self._registry.find(runtime)
        stats = handle.capability(SupportsStats) if handle is not None and handle.state.reachable else None
        if handle is None or stats is None:
            return
        for uid in uids:
            query = partial(stats.list_unit_stats, {names.POD_UID: str(uid)})
            try:
                units = await handle.ask("list_unit_stats", query, seconds=_STATS_SECONDS)
            except KubeletxError as error:
                log.debug("Failed to read the usage of a pod with sessions", pod_uid=uid, err=str(error))
                if isinstance(error, TimedOut):
                    continue
                return
            readings[uid] = _measured(readings[uid], units)

    def _cgroup(self, worker: PodWorker) -> str:
        """Return the path of the pod's cgroup; empty if the runtime measures the pod."""
        if self._cgroups is None or worker.facts.own.has_own_kernel:
            return ""
        try:
            return self._cgroups.location(worker.desired.pod)
        except KubeletxError:
            return ""


def _read_pods(trees: CgroupTrees, places: Mapping[PodUid, tuple[str, Path]]) -> dict[PodUid, PodReading]:
    from kubeletx.sessions.meter import PodReading

    readings = {}
    for uid, (cgroup, logs) in places.items():
        positions = tuple(_log_positions(logs))
        if cgroup:
            usage = read_cgroup(trees, cgroup)
            readings[uid] = PodReading(
                cpu_seconds=usage.cpu_seconds, memory_bytes=usage.working_set_bytes, logs=positions
            )
        else:
            readings[uid] = PodReading(logs=positions)
    return readings


def _log_positions(directory: Path) -> Iterator[LogPosition]:
    """Yield the end of the newest log of each container in a pod's log directory."""
    from kubeletx.sessions.meter import LogPosition

    try:
        containers = sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError:  # the pod has no logs, or they are being removed
        return
    for container in containers:
        try:
            runs = [int(match[1]) for path in container.iterdir() if (match := _LOG.fullmatch(path.name))]
            if runs:
                name = f"{max(runs)}.log"
                stat = (container / name).stat()
                yield LogPosition(
                    container=container.name,
                    file=f"{container.name}/{name}",
                    inode=stat.st_ino,
                    offset=stat.st_size,
                )
        except OSError:  # rotated or removed while it is read
            continue


def _measured(reading: PodReading, units: Sequence[UnitStats]) -> PodReading:
    from kubeletx.sessions.meter import PodReading

    cpu = [unit.cpu_usage_core_ns for unit in units if unit.cpu_usage_core_ns is not None]
    memory = [unit.memory_working_set_bytes or unit.memory_usage_bytes or 0 for unit in units]
    return PodReading(
        cpu_seconds=sum(cpu) / 1e9 if cpu else None,
        memory_bytes=sum(memory) if memory else None,
        logs=reading.logs,
    )
