"""Reads usage of the node, its pods and their containers from /proc and cgroup files.

These calls block; `FigureBackend` makes them on a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kubeletx.api import InterfaceStats
from kubeletx.node.cgroups.processes import ProcessUsage, read_processes
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.cgroups.usage import (
    CgroupSpec,
    CgroupUsage,
    children,
    made_at,
    own_cgroup,
    read_cgroup,
    read_interfaces,
)
from kubeletx.node.host_usage import FsUsage, HostUsage, device_of, read_fs, read_host
from kubeletx.server.metrics.figures import GroupFigures, SystemFigures


class KernelUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one container, read from its cgroup. `path`: path of the cgroup; empty if it was not found."""

    path: str = ""
    usage: CgroupUsage = CgroupUsage()
    processes: ProcessUsage = ProcessUsage()


class KernelNode(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the node, read from the kernel.

    `host`: usage of the whole machine. `groups`: usage of cgroups that are not a pod's: the root cgroup (empty path),
    the cgroups that contain pods' cgroups, and systemd's top-level slices. `system`: usage of the agent (named
    ``kubelet``) and of all pods together (``pods``). `root_device`: block device of the agent's root directory.
    """

    host: HostUsage
    groups: tuple[GroupFigures, ...]
    system: tuple[SystemFigures, ...]
    root_device: str


class KernelPod(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one pod, read from its cgroups and its log directory.

    `units`: containers by id. `interfaces` empty: unknown, or the pod uses the host's network. `logs`: bytes of log
    files by container name. `cgroup` None and `cgroup_path` empty: the agent made no cgroup for the pod.
    """

    units: dict[str, KernelUnit] = {}
    interfaces: tuple[InterfaceStats, ...] = ()
    logs: dict[str, int] = {}
    cgroup: CgroupUsage | None = None
    cgroup_path: str = ""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Names one pod whose usage `read_kernel` reads, and the places to read it from.

    `cgroup`: path of the pod's cgroup, empty if the agent made none. `logs`: the pod's log directory.
    """

    uid: str
    cgroup: str
    host_network: bool
    logs: Path
    units: dict[str, str]
    """Running containers: id → name."""


def read_kernel(
    trees: CgroupTrees, root_dir: Path, shared: tuple[str, ...], wanted: list[Wanted]
) -> tuple[KernelNode, dict[str, KernelPod]]:
    """Read the usage of the node, and of each pod in `wanted`; returns the pods' usage by pod UID.

    `root_dir`: the agent's root directory. `shared`: paths of the cgroups that contain pods' cgroups; the first one
    contains all pods.
    """
    host = read_host(root_dir)
    groups = [GroupFigures(path="", usage=_root_usage(trees, host))]
    groups += [GroupFigures(path=path, usage=read_cgroup(trees, path)) for path in (*shared, *_slices(trees))]
    node = KernelNode(
        host=host,
        groups=tuple({group.path: group for group in groups}.values()),
        system=tuple(_system(trees, shared)),
        root_device=device_of(root_dir),
    )
    return node, {pod.uid: _read_pod(trees, pod) for pod in wanted}


def _root_usage(trees: CgroupTrees, host: HostUsage) -> CgroupUsage:
    """Return the usage of the whole machine, as if it were the usage of the root cgroup.

    CPU, memory and pressure are taken from /proc, since the root cgroup of cgroup v2 has no memory usage.
    """
    return msgspec.structs.replace(
        read_cgroup(trees, ""),
        cpu_seconds=host.cpu_core_ns / 1e9,
        memory_bytes=host.memory_usage_bytes,
        working_set_bytes=host.memory_working_set_bytes,
        rss_bytes=host.memory_rss_bytes,
        swap_bytes=host.swap_usage_bytes,
        spec=CgroupSpec(),
        pressures=host.pressures,
    )


def _slices(trees: CgroupTrees) -> list[str]:
    """Return the names of systemd's top-level slices, such as ``system.slice``, sorted."""
    return sorted(name for name in children(trees, "") if name.endswith(".slice"))


def _system(trees: CgroupTrees, shared: tuple[str, ...]) -> Iterator[SystemFigures]:
    """Yield the usage of the agent, named ``kubelet``, and of all pods together, named ``pods``.

    The first is left out if the agent has no cgroup of its own, the second if `shared` is empty.
    """
    own = own_cgroup(trees)
    if own:
        yield _system_figures(trees, "kubelet", own)
    if shared:
        yield _system_figures(trees, "pods", shared[0])


def _system_figures(trees: CgroupTrees, name: str, path: str) -> SystemFigures:
    return SystemFigures(name=name, usage=read_cgroup(trees, path), started_at=made_at(trees, path))


def read_image_fs(mount: str) -> tuple[FsUsage | None, str]:
    """Return the usage of the file system that contains `mount`, and its block device, such as ``8:1``.

    The usage is None, and the device empty, if the path cannot be read.
    """
    return read_fs(Path(mount)), device_of(Path(mount))


def _read_pod(trees: CgroupTrees, wanted: Wanted) -> KernelPod:
    logs = {name: _size(wanted.logs / name) for name in wanted.units.values()}
    if not wanted.cgroup:
        return KernelPod(logs=logs)
    units: dict[str, KernelUnit] = {}
    interfaces: tuple[InterfaceStats, ...] = ()
    for child in children(trees, wanted.cgroup):
        path = f"{wanted.cgroup}/{child}"
        for unit_id in wanted.units:
            if unit_id in child:
                units[unit_id] = KernelUnit(
                    path=path, usage=read_cgroup(trees, path), processes=read_processes(trees, path)
                )
        if not interfaces and not wanted.host_network:
            interfaces = read_interfaces(trees, path)
    return KernelPod(
        units=units,
        interfaces=interfaces,
        logs=logs,
        cgroup=read_cgroup(trees, wanted.cgroup),
        cgroup_path=wanted.cgroup,
    )


def _size(directory: Path) -> int:
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat().st_size for entry in entries)
    except OSError:  # rotated or removed while it is read
        return 0
