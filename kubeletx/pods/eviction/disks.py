"""Disk usage of pods, measured periodically on threads, for evictions and statistics.

A pod is measured every minute; a pod with disk limits every ten seconds. A pod whose directories take long to walk is
measured less often, so that its measurements take at most a fiftieth of one thread's time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import Blocking, Clock, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.node.host_usage import read_fs
from kubeletx.volumes import layout
from kubeletx.volumes.disk_usage import DiskUse, measure
from kubeletx.volumes.files.held import hold_directory

from ..model.facts import Fact
from ..model.node_context import NodeContext
from . import limits
from .volume_use import VolumeUse

LOOK_SECONDS: Final = 10.0
PERIOD_SECONDS: Final = 60.0
TURN_SECONDS: Final = 0.05
"""Time after which no further pod is measured in the same call of a thread, of which each costs CPU time."""
LAZINESS: Final = 50
"""Minimum interval between two measurements of a pod, as a multiple of the duration of the last one."""
_LOCAL: Final = (layout.EMPTY_DIR, layout.DOWNWARD_API, layout.PROJECTED, layout.CONFIG_MAP, layout.SECRET)


class PodDisk(Fact, frozen=True, kw_only=True):
    """Measured disk usage of one pod.

    `at`: monotonic time of the measurement. `seconds`: its duration. `volumes`: volumes on the node's disk, by name.
    `reported`: all volumes below the pod's directory by name, memory-backed ones included, for statistics. `logs`: usage
    by container. `other`: other files of the pod, such as its hosts file.
    """

    at: float
    volumes: Mapping[str, DiskUse] = {}
    reported: Mapping[str, VolumeUse] = {}
    logs: Mapping[str, DiskUse] = {}
    other: DiskUse = DiskUse()
    seconds: float = 0.0


class DiskBoard:
    """Measures the disk usage of pods periodically (`run`) and keeps the last result of each pod (`figures`)."""

    def __init__(
        self,
        context: NodeContext,
        *,
        pods: Callable[[], Iterable[Pod]],
        blocking: Blocking,
        clock: Clock,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """`pods`: returns the pods to measure now. `period_seconds`: interval for pods without disk limits."""
        self._context = context
        self._pods = pods
        self._blocking = blocking
        self._clock = clock
        self._period_seconds = period_seconds
        self._figures: dict[PodUid, PodDisk] = {}

    @property
    def figures(self) -> Mapping[PodUid, PodDisk]:
        """Last measurement of each pod by UID; pods that were not measured yet are missing."""
        return self._figures

    async def run(self) -> None:
        """Measure the pods that are due, every `LOOK_SECONDS`, until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(LOOK_SECONDS)

    async def refresh(self, *, max_age_seconds: float | None = None) -> None:
        """Measure the pods that are due by their intervals.

        If `max_age_seconds` is given, measure instead every pod whose last measurement is older than this.
        """
        pods = list(self._pods())
        for uid in self._figures.keys() - {pod.uid for pod in pods}:
            del self._figures[uid]
        now = self._clock.monotonic()
        due = [pod for pod in pods if self._is_due(pod, now, max_age_seconds)]
        while due:
            now, wall = self._clock.monotonic(), self._clock.now().timestamp()
            measured = await self._blocking(_measure_some, self._context, due, now, wall)
            self._figures.update(measured)
            due = due[len(measured) :]

    def _is_due(self, pod: Pod, now: float, max_age_seconds: float | None) -> bool:
        known = self._figures.get(pod.uid)
        if known is None:
            return True
        if max_age_seconds is not None:
            return now - known.at > max_age_seconds
        period = LOOK_SECONDS if limits.has_limits(pod) else self._period_seconds
        # A directory with millions of files takes minutes: measuring it gets a fixed share of one thread.
        return now - known.at >= max(period, LAZINESS * known.seconds)


def _measure_some(
    context: NodeContext, pods: Sequence[Pod], now: float, wall: float
) -> dict[PodUid, PodDisk]:
    """Measure pods in their order until `TURN_SECONDS` have passed, at least one of them."""
    began = time.perf_counter()
    measured: dict[PodUid, PodDisk] = {}
    for pod in pods:
        measured[pod.uid] = _measure(context, pod, now, wall)
        if time.perf_counter() - began > TURN_SECONDS:
            break
    return measured


def _measure(context: NodeContext, pod: Pod, now: float, wall: float) -> PodDisk:
    began = time.perf_counter()
    root = context.root_dir
    device = _device(root)
    volumes: dict[str, DiskUse] = {}
    reported: dict[str, VolumeUse] = {}
    for kind in _LOCAL:
        for path in _children(layout.volumes_dir(root, pod.uid) / f"kubernetes.io~{kind}"):
            use, fs = measure(path), read_fs(path)
            if _device(path) == device:  # else it is in memory
                volumes[path.name] = use
            if fs is not None:
                reported[path.name] = VolumeUse(at=wall, fs=fs, use=use)
    logs = {path.name: measure(path) for path in _children(context.log_directory(pod))}
    own = context.pod_directory(pod.uid)
    return PodDisk(
        at=now,
        volumes=volumes,
        reported=reported,
        logs=logs,
        other=measure(layout.hosts_path(root, pod.uid)) + measure(own / "containers"),
        seconds=time.perf_counter() - began,
    )


def _children(path: Path) -> list[Path]:
    """Return the subdirectories of a directory, without symbolic links; empty if it cannot be opened."""
    try:
        with hold_directory(path, depth=1) as directory:
            return [path / name for name in directory.directories()]
    except OSError:  # the pod's directory was removed, or a link stands in its place
        return []


def _device(path: Path) -> int | None:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return None
