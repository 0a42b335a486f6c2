"""Usage of volumes outside the pod's own directory: persistent volume claims, nfs, volumes of drivers.

    running pods ─► their prepared volumes ─► one statvfs each, on separate threads, or the volume driver ─► figures

Each volume is measured once in a period. If a file server does not answer, one thread is blocked; the volume is not
measured again before that call returns, and its last result is dropped. As in the kubelet, the result is the usage of
the whole file system. Volumes below the pod's directory are measured by `eviction.disks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Blocking, Clock, KubeletxError, PodUid, SourceKind, VolumeStats
from kubeletx.kube.types.core import Pod, Volume
from kubeletx.node.host_usage import FsUsage, read_fs
from kubeletx.volumes.disk_usage import DiskUse
from kubeletx.volumes.kinds.table import kind_of
from kubeletx.volumes.prepared import PreparedVolume, PreparedVolumes
from kubeletx.volumes.references import claim_of

from ..model.facts import Fact

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
CLAIMS: Final = frozenset({"persistent_volume_claim", "ephemeral"})
_OTHERS_BUSINESS: Final = frozenset(
    {"empty_dir", "config_map", "secret", "downward_api", "projected", "host_path", "image"}
)
"""Volume kinds that are not measured here.

They are the kinds in the pod's directory, and hostPath and image volumes, whose data is not the pod's own.
"""


class VolumeUse(Fact, frozen=True, kw_only=True):
    """Usage of one volume. `at`: time of the measurement, seconds since the epoch.

    `fs`: usage of the volume's file system. `use`: usage of the volume itself; None if the volume is the whole file
    system. `claim`: name of its PersistentVolumeClaim in the pod's namespace; empty if it has none.
    """

    at: float
    fs: FsUsage
    use: DiskUse | None = None
    claim: str = ""


class VolumeBoard:
    """Measures volumes outside the pods' directories periodically (`run`) and keeps the last results (`figures`)."""

    def __init__(
        self,
        *,
        pods: Callable[[], Iterable[Pod]],
        prepared: Callable[[PodUid], PreparedVolumes | None],
        stats: Callable[[PodUid, str], Awaitable[VolumeStats]],
        blocking: Blocking,
        clock: Clock,
        period_seconds: float,
        measure: Callable[[Path], FsUsage | None] = read_fs,
    ) -> None:
        """`pods`: returns the pods to measure now. `prepared`: returns a pod's prepared volumes; None if it has none.

        `stats`: returns what the volume driver of a volume measures. `blocking`: runs calls on threads that may be
        blocked by file servers. `period_seconds`: interval between two measurements of a volume. `measure`: returns the
        usage of the file system at a path.
        """
        self._pods = pods
        self._prepared = prepared
        self._stats = stats
        self._blocking = blocking
        self._clock = clock
        self._period_seconds = period_seconds
        self._measure = measure
        self._figures: dict[PodUid, dict[str, VolumeUse]] = {}
        self._asked_at: dict[tuple[PodUid, str], float] = {}
        self._asking: set[tuple[PodUid, str]] = set()

    @property
    def figures(self) -> Mapping[PodUid, Mapping[str, VolumeUse]]:
        """Last measured usage by pod UID and volume name.

        Volumes that were not measured yet, or whose file server does not answer, are missing.
        """
        return self._figures

    async def run(self) -> None:
        """Measure the volumes that are due, every `LOOK_SECONDS`, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for uid, volume, ready, claim in self._due():
                    group.create_task(self._ask(uid, volume, ready, claim), name=f"volume {uid}/{volume}")
                await self._clock.sleep(LOOK_SECONDS)

    def _due(self) -> Iterator[tuple[PodUid, str, PreparedVolume, str]]:
        now = self._clock.monotonic()
        pods = {pod.uid: pod for pod in self._pods()}
        self._figures = {uid: known for uid, known in self._figures.items() if uid in pods}
        self._asked_at = {key: at for key, at in self._asked_at.items() if key[0] in pods}
        for pod in pods.values():
            for volume in pod.spec.volumes:
                key = (pod.uid, volume.name)
                ready = self._measured(pod, volume)
                if ready is None or now - self._asked_at.get(key, float("-inf")) < self._period_seconds:
                    continue
                if key in self._asking:
                    # The call of the last period still runs, so its server hangs; an old figure would look current.
                    self._figures.get(pod.uid, {}).pop(volume.name, None)
                    continue
                self._asked_at[key] = now
                # At most one call for a volume: a call that hangs occupies its thread.
                self._asking.add(key)
                yield pod.uid, volume.name, ready, _claim(pod, volume)

    def _measured(self, pod: Pod, volume: Volume) -> PreparedVolume | None:
        """Return the volume as it was prepared; None if it is not measured here."""
        if kind_of(volume) in _OTHERS_BUSINESS:
            return None
        prepared = self._prepared(pod.uid)
        ready = prepared.volumes.get(volume.name) if prepared is not None else None
        if ready is None or not ready.source:
            return None
        return ready if ready.has_stats or ready.kind is SourceKind.DIRECTORY else None

    async def _ask(self, uid: PodUid, volume: str, ready: PreparedVolume, claim: str) -> None:
        try:
            if ready.has_stats:
                fs = _as_fs(await self._stats(uid, volume))
            else:
                fs = await self._blocking(self._measure, Path(ready.source))
        except KubeletxError as error:
            log.debug("Failed to measure a volume", pod_uid=uid, volume=volume, err=str(error))
            if ready.has_stats:
                self._figures.get(uid, {}).pop(volume, None)
            else:
                self._asked_at.pop((uid, volume), None)  # all threads are busy: try again in the next round
            return
        finally:
            self._asking.discard((uid, volume))
        known = self._figures.setdefault(uid, {})
        if fs is None:
            known.pop(volume, None)
        else:
            known[volume] = VolumeUse(at=self._clock.now().timestamp(), fs=fs, claim=claim)


def _as_fs(stats: VolumeStats) -> FsUsage | None:
    """Convert a driver's figures to figures of a file system; None without a capacity."""
    if stats.capacity_bytes is None:
        return None
    used = stats.used_bytes or 0
    return FsUsage(
        capacity_bytes=stats.capacity_bytes,
        available_bytes=stats.capacity_bytes - used
        if stats.available_bytes is None
        else stats.available_bytes,
        used_bytes=used,
        inodes=stats.inodes or 0,
        inodes_free=stats.inodes_free or 0,
    )


def _claim(pod: Pod, volume: Volume) -> str:
    return claim_of(pod, volume) if kind_of(volume) in CLAIMS else ""
