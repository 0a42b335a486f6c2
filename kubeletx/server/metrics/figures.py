"""Measurements from which `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor` are rendered.

A unit is a container, or the virtual machine of a pod; only running units are included. The runtime measures a unit
(`UnitStats`), and so does the kernel (`CgroupUsage`). None means not measured, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from kubeletx.api import InterfaceStats, UnitStats
from kubeletx.node.cgroups.processes import ProcessUsage
from kubeletx.node.cgroups.usage import CgroupUsage
from kubeletx.node.host_usage import FsUsage, HostUsage
from kubeletx.node.info import MachineInfo
from kubeletx.volumes.disk_usage import DiskUse


class UnitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one container, or of a pod's virtual machine.

    `started_at`: seconds since the epoch. `log_bytes`: size of its log; None: it has no log file. Limits come from
    the pod's spec: `cpu_limit_millicores` and `memory_limit_bytes` are 0 without a limit.
    """

    name: str
    id: str
    image: str
    started_at: float
    stats: UnitStats
    cgroup: CgroupUsage = CgroupUsage()
    cgroup_path: str = ""
    """Path of the cgroup without a leading slash; empty if unknown."""
    processes: ProcessUsage = ProcessUsage()
    log_bytes: int | None = None
    cpu_limit_millicores: int = 0
    memory_limit_bytes: int = 0


class VolumeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Measured usage of one volume.

    `at`: time of the measurement, in seconds since the epoch. `fs`: usage of the file system that contains the
    volume. `use`: the volume's own usage; None: the volume is the whole file system. `claim`: name of its persistent
    volume claim, empty if there is none. `on_node_disk`: the volume counts as ephemeral storage of the pod.
    """

    at: float
    fs: FsUsage
    use: DiskUse | None = None
    claim: str = ""
    on_node_disk: bool = False


class PodFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one pod.

    `started_at`: seconds since the epoch. `is_whole`: every running unit was measured. `interfaces` empty: unknown,
    or the pod uses the host's network. `volumes`: by name; empty until they are measured.
    """

    namespace: str
    name: str
    uid: str
    runtime: str
    started_at: float
    units: tuple[UnitFigures, ...] = ()
    is_whole: bool = True
    interfaces: tuple[InterfaceStats, ...] = ()
    volumes: Mapping[str, VolumeFigures] = {}
    cgroup: CgroupUsage | None = None
    """Usage of the pod's cgroup; None if the agent made none for it."""
    cgroup_path: str = ""


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a cgroup that does not belong to one pod.

    It is the root cgroup (empty path), the cgroup of all pods or of a QoS class, or a systemd slice.
    """

    path: str
    usage: CgroupUsage


class SystemFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Usage that is one entry of ``systemContainers`` in ``/stats/summary``.

    `name`: as in a kubelet, such as pods. `started_at`: seconds since the epoch. `cpu_nano_cores`: CPU usage since the
    measurement before; None: not measured.
    """

    name: str
    usage: CgroupUsage
    started_at: float
    cpu_nano_cores: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of the node and all pods, made together.

    `cpu_nano_cores`: CPU usage of the node since the measurement before; None: there was none. `missing`: names of
    runtimes that did not answer. `machine`: None until it was read. `root_device`, `image_device`: block devices of
    `host.fs` and `image_fs`, such as ``8:1``; empty if unknown.
    """

    node_name: str
    host: HostUsage
    cpu_nano_cores: int | None = None
    image_fs: FsUsage | None = None
    pods: tuple[PodFigures, ...] = ()
    missing: tuple[str, ...] = ()
    machine: MachineInfo | None = None
    groups: tuple[GroupFigures, ...] = ()
    system: tuple[SystemFigures, ...] = ()
    root_device: str = ""
    image_device: str = ""


class FiguresSource(Protocol):
    """Protocol of the object that measures the node and its pods; the agent implements it."""

    async def figures(self) -> Figures:
        """Return measurements that are at most a few seconds old."""
        ...
