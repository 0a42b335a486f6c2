"""Input of `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor`: one reading of everything.

A pod has its runtime's measurements (`UnitStats`) and the kernel's counters. None means not
measured, never 0. Units are those that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from kubeletx.api import InterfaceStats, UnitStats
from kubeletx.node.cgroups.processes import ProcessUsage
from kubeletx.node.cgroups.usage import CgroupUsage
from kubeletx.node.host_usage import FsUsage, HostUsage
from kubeletx.node.machine import MachineInfo
from kubeletx.volumes.disk_usage import DiskUse


class UnitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one container or machine. `started_at`: seconds since the epoch. `log_bytes` None: it has no log file.

    Limits come from the pod's spec: `cpu_limit_millicores` and `memory_limit_bytes` are 0 without a limit.
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
    """Figures of one volume. `at`: since the epoch. `fs`: of its file system. `use`: its own part; None: all of it.

    `claim`: the claim that it comes from; empty if none. `on_node_disk`: it counts as the pod's ephemeral storage.
    """

    at: float
    fs: FsUsage
    use: DiskUse | None = None
    claim: str = ""
    on_node_disk: bool = False


class PodFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one pod. `is_whole`: every unit that should run was measured.

    `interfaces` empty: unknown, or the node's own. `volumes`: by name; empty until they were measured.
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
    """Figures of a cgroup other than a pod's: of the machine (empty path), of all pods, of a QoS class, or a slice."""

    path: str
    usage: CgroupUsage


class SystemFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``systemContainers``. `name`: the kubelet's, such as pods. `started_at`: since the epoch."""

    name: str
    usage: CgroupUsage
    started_at: float
    cpu_nano_cores: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of everything. `cpu_nano_cores` None: there was no earlier reading.

    `missing`: runtimes without an answer.

    `root_device`, `image_device`: block devices of `host.fs` and `image_fs`, such as ``8:1``; empty if unknown.
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
    """Source of figures."""

    async def figures(self) -> Figures:
        """Figures that are at most a few seconds old."""
        ...
