"""Renders ``/stats/summary``, the kubelet's statistics as JSON. Pure. Source: kubelet, pkg/apis/stats/v1alpha1."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeletx.api import InterfaceStats
from kubeletx.node.cgroups.psi import Pressures, PressureStall, Stall
from kubeletx.node.host_usage import FsUsage, HostUsage

from .figures import Figures, PodFigures, SystemFigures, UnitFigures, VolumeFigures
from .resource import memory_of, swap_of


def summary(figures: Figures, *, only_cpu_and_memory: bool = False) -> dict[str, Any]:
    """Return the Summary object as plain values for JSON.

    `only_cpu_and_memory`: leave out file systems, volumes, network, I/O, swap and process counts.
    """
    pods = [_pod(pod, only_cpu_and_memory) for pod in figures.pods]
    return {"node": _node(figures, only_cpu_and_memory), "pods": pods}


def _node(figures: Figures, is_short: bool) -> dict[str, Any]:
    host = figures.host
    at = _time(host.at_ns / 1e9)
    fields: dict[str, Any] = {
        "nodeName": figures.node_name,
        "startTime": _time(host.booted_at),
        "cpu": _set(time=at, usageNanoCores=figures.cpu_nano_cores, usageCoreNanoSeconds=host.cpu_core_ns),
        "memory": {
            "time": at,
            "availableBytes": max(host.memory_capacity_bytes - host.memory_working_set_bytes, 0),
            "usageBytes": host.memory_usage_bytes,
            "workingSetBytes": host.memory_working_set_bytes,
            "rssBytes": host.memory_rss_bytes,
            "pageFaults": host.page_faults,
            "majorPageFaults": host.major_page_faults,
        },
    }
    _add_pressures(fields, host.pressures, at, with_io=not is_short)
    if figures.system:
        fields["systemContainers"] = [_system(cgroup, at) for cgroup in figures.system]
    if is_short:
        return fields
    fields["swap"] = _swap(host, at)
    if host.interfaces:
        fields["network"] = _network(host.interfaces, at)
    if host.fs is not None:
        fields["fs"] = _fs(host.fs, at)
    if figures.image_fs is not None:
        fields["runtime"] = {"imageFs": _fs(figures.image_fs, at), "containerFs": _fs(figures.image_fs, at)}
    return fields


def _system(system: SystemFigures, at: str) -> dict[str, Any]:
    usage = system.usage
    fields: dict[str, Any] = {
        "name": system.name,
        "startTime": _time(system.started_at),
        "cpu": _set(
            time=at,
            usageNanoCores=system.cpu_nano_cores,
            usageCoreNanoSeconds=_nanoseconds(usage.cpu_seconds),
        ),
        "memory": _set(
            time=at,
            usageBytes=usage.memory_bytes,
            workingSetBytes=usage.working_set_bytes,
            rssBytes=usage.rss_bytes,
            pageFaults=usage.faults,
            majorPageFaults=usage.major_faults,
        ),
    }
    _add_pressures(fields, usage.pressures, at, with_io=False)
    return fields


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _add_pressures(fields: dict[str, Any], pressures: Pressures, at: str, *, with_io: bool) -> None:
    """Add ``psi``, the pressure stall information, to each resource in `fields`, if the kernel reports it.

    `with_io`: also add the key ``io``.
    """
    for name, pressure in (("cpu", pressures.cpu), ("memory", pressures.memory)):
        if pressure is not None and name in fields:
            fields[name]["psi"] = _psi(pressure)
    if with_io and pressures.io is not None:
        fields["io"] = {"time": at, "psi": _psi(pressures.io)}


def _psi(pressure: PressureStall) -> dict[str, Any]:
    return {name: _stall(stall) for name, stall in (("full", pressure.full), ("some", pressure.some))}


def _stall(stall: Stall) -> dict[str, Any]:
    return {"total": stall.total_us, "avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300}


def _swap(host: HostUsage, at: str) -> dict[str, Any]:
    free = host.swap_capacity_bytes - host.swap_usage_bytes
    return {"time": at, "swapAvailableBytes": free, "swapUsageBytes": host.swap_usage_bytes}


def _pod(pod: PodFigures, is_short: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": _time(pod.started_at),
        "containers": [_unit(unit, is_short) for unit in pod.units],
    }
    if pod.volumes and not is_short:
        fields["volume"] = [
            _volume(name, pod.namespace, volume) for name, volume in sorted(pod.volumes.items())
        ]
    measured = [unit.stats for unit in pod.units]
    if not measured:
        return fields
    at = _time(max(stats.at_ns for stats in measured) / 1e9)
    fields["cpu"] = _set(
        time=at,
        usageNanoCores=_sum(stats.cpu_usage_nano_cores for stats in measured),
        usageCoreNanoSeconds=_sum(stats.cpu_usage_core_ns for stats in measured),
    )
    fields["memory"] = _set(
        time=at,
        usageBytes=_sum(stats.memory_usage_bytes for stats in measured),
        workingSetBytes=_sum(memory_of(stats) for stats in measured),
        rssBytes=_sum(stats.memory_rss_bytes for stats in measured),
    )
    if pod.cgroup is not None:
        _add_pressures(fields, pod.cgroup.pressures, at, with_io=not is_short)
    if is_short:
        return fields
    if pod.cgroup is not None and pod.cgroup.swap_bytes is not None:
        fields["swap"] = {"time": at, "swapUsageBytes": pod.cgroup.swap_bytes}
    processes = [unit.processes.processes for unit in pod.units]
    if (count := _sum(processes)) is not None:
        fields["process_stats"] = {"process_count": count}
    if pod.interfaces:
        fields["network"] = _network(pod.interfaces, at)
    used = _sum(
        [
            *(stats.fs_used_bytes for stats in measured),
            *(unit.log_bytes for unit in pod.units),
            *(
                volume.use.bytes
                for volume in pod.volumes.values()
                if volume.on_node_disk and volume.use is not None
            ),
        ]
    )
    if used is not None:
        fields["ephemeral-storage"] = {"time": at, "usedBytes": used}
    return fields


def _unit(unit: UnitFigures, is_short: bool) -> dict[str, Any]:
    stats = unit.stats
    at = _time(stats.at_ns / 1e9)
    fields: dict[str, Any] = {
        "name": unit.name,
        "startTime": _time(unit.started_at),
        "cpu": _set(
            time=at,
            usageNanoCores=stats.cpu_usage_nano_cores,
            usageCoreNanoSeconds=stats.cpu_usage_core_ns,
        ),
        "memory": _set(
            time=at,
            availableBytes=stats.memory_available_bytes,
            usageBytes=stats.memory_usage_bytes,
            workingSetBytes=memory_of(stats),
            rssBytes=stats.memory_rss_bytes,
        ),
    }
    _add_pressures(fields, unit.cgroup.pressures, at, with_io=not is_short)
    if is_short:
        return fields
    if stats.fs_used_bytes is not None:
        fields["rootfs"] = _set(time=at, usedBytes=stats.fs_used_bytes, inodesUsed=stats.fs_inodes_used)
    if unit.log_bytes is not None:
        fields["logs"] = {"time": at, "usedBytes": unit.log_bytes}
    swapped, limit = swap_of(unit), unit.cgroup.spec.swap_limit_bytes
    if swapped is not None:
        left = None if limit is None else max(limit - swapped, 0)
        fields["swap"] = _set(time=at, swapAvailableBytes=left, swapUsageBytes=swapped)
    return fields


def _network(interfaces: tuple[InterfaceStats, ...], at: str) -> dict[str, Any]:
    rows = [
        {
            "name": interface.name,
            "rxBytes": interface.rx_bytes,
            "rxErrors": interface.rx_errors,
            "txBytes": interface.tx_bytes,
            "txErrors": interface.tx_errors,
        }
        for interface in interfaces
    ]
    default = next((row for row in rows if row["name"] == "eth0"), rows[0])
    return {"time": at, **default, "interfaces": rows}


def _fs(fs: FsUsage, at: str) -> dict[str, Any]:
    return {
        "time": at,
        "availableBytes": fs.available_bytes,
        "capacityBytes": fs.capacity_bytes,
        "usedBytes": fs.used_bytes,
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": fs.inodes - fs.inodes_free,
    }


def _volume(name: str, namespace: str, volume: VolumeFigures) -> dict[str, Any]:
    fields = {**_fs(volume.fs, _time(volume.at)), "name": name}
    if volume.use is not None:
        fields |= {"usedBytes": volume.use.bytes, "inodesUsed": volume.use.inodes}
    if volume.claim:
        fields["pvcRef"] = {"name": volume.claim, "namespace": namespace}
    return fields


def _set(**values: Any) -> dict[str, Any]:
    """Return the values that are not None, by name."""
    return {name: value for name, value in values.items() if value is not None}


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
