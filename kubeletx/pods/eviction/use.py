"""Data types for the measured usage of one pod: memory, disk space and processes."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.volumes.disk_usage import DiskUse, add_up

from ..model.facts import Fact
from ..model.priority import is_critical, priority_of
from ..model.sources import SourceTraits


class DiskPart(enum.Enum):
    """Part of a pod's data on disk: writable layers, container logs, or volumes and other files."""

    ROOTFS = "rootfs"
    LOGS = "logs"
    VOLUMES = "volumes"


class ContainerUse(Fact, frozen=True, kw_only=True):
    """Usage of a container, or of a virtual machine including its emulator process.

    Values that were not measured are None, never 0.
    """

    name: str
    memory_bytes: int | None = None
    rootfs: DiskUse | None = None
    logs: DiskUse | None = None


class PodUse(Fact, frozen=True, kw_only=True):
    """Measured usage of one pod.

    `image_place`: place (`ImageDisk.place`) of the disk on which the pod's runtime keeps writable layers; None if
    unknown. `volumes`: volumes on the node's disk, by name. `other`: other files of the pod, such as its hosts file.
    `has_own_disk`: True for a machine, whose root disk has a fixed size, so that its ephemeral storage is not checked.
    """

    uid: PodUid
    pod: Pod
    source: SourceTraits
    containers: tuple[ContainerUse, ...] = ()
    volumes: Mapping[str, DiskUse] = {}
    other: DiskUse = DiskUse()
    pids: int | None = None
    image_place: str | None = None
    has_own_disk: bool = False

    @property
    def priority(self) -> int:
        return priority_of(self.pod)

    @property
    def is_critical(self) -> bool:
        """True if the pod is never evicted."""
        return is_critical(self.pod, self.source)

    @property
    def memory_bytes(self) -> int | None:
        """Memory in bytes of all measured containers; None if none was measured."""
        return _total(container.memory_bytes for container in self.containers)

    def disk(self, parts: Collection[DiskPart]) -> DiskUse | None:
        """Return the pod's disk usage in these parts together; None if none of them was measured."""
        uses: list[DiskUse] = []
        for container in self.containers:
            if DiskPart.ROOTFS in parts and container.rootfs is not None:
                uses.append(container.rootfs)
            if DiskPart.LOGS in parts and container.logs is not None:
                uses.append(container.logs)
        if DiskPart.VOLUMES in parts:
            uses += [*self.volumes.values(), self.other]
        return add_up(uses) if uses else None


def _total(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
