"""Renders ``/metrics/cadvisor``: the series that dashboards of containers are built on.

Names and labels are cAdvisor's, plus the label ``runtime``. There are samples of the machine (id ``/``), of the parent
cgroups of pods, of pods, and of containers; only containers' cgroups have a container's name and image. For a virtual
machine there are the values that its runtime measures. Network counters belong to the pod, so they have no container.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kubeletx.api import InterfaceStats
from kubeletx.kube.text.exposition import Family, labels_of, render, with_labels
from kubeletx.node.cgroups.usage import CgroupUsage
from kubeletx.node.host_usage import DiskTraffic, FsUsage

from .cadvisor_series import FAILURES, PROCESSES, SERIES
from .figures import Figures, PodFigures, UnitFigures
from .resource import memory_of

_PERIOD_US = 100_000

_OF_UNITS: Mapping[str, Callable[[UnitFigures], float | None]] = {
    "container_memory_working_set_bytes": lambda u: memory_of(u.stats),
    "container_memory_usage_bytes": lambda u: _known(u.stats.memory_usage_bytes, memory_of(u.stats)),
    "container_memory_rss": lambda u: _known(u.cgroup.rss_bytes, u.stats.memory_rss_bytes),
    "container_memory_swap": lambda u: _known(u.cgroup.swap_bytes, u.stats.swap_usage_bytes),
    "container_spec_memory_limit_bytes": lambda u: _known(
        u.cgroup.spec.memory_limit_bytes, u.memory_limit_bytes
    ),
    "container_spec_cpu_period": lambda u: _known(u.cgroup.spec.cpu_period_us, _PERIOD_US),
    "container_spec_cpu_quota": lambda u: (
        _known(u.cgroup.spec.cpu_quota_us, u.cpu_limit_millicores * _PERIOD_US // 1000) or None
    ),
}
"""Functions that choose a container's value from its cgroup, its runtime and the pod's spec, by name of the series."""

_NETWORK: tuple[tuple[str, str, Callable[[InterfaceStats], int]], ...] = (
    ("container_network_receive_bytes_total", "Bytes received.", lambda i: i.rx_bytes),
    ("container_network_receive_packets_total", "Packets received.", lambda i: i.rx_packets),
    ("container_network_receive_packets_dropped_total", "Dropped while receiving.", lambda i: i.rx_dropped),
    ("container_network_receive_errors_total", "Errors while receiving.", lambda i: i.rx_errors),
    ("container_network_transmit_bytes_total", "Bytes sent.", lambda i: i.tx_bytes),
    ("container_network_transmit_packets_total", "Packets sent.", lambda i: i.tx_packets),
    ("container_network_transmit_packets_dropped_total", "Dropped while sending.", lambda i: i.tx_dropped),
    ("container_network_transmit_errors_total", "Errors while sending.", lambda i: i.tx_errors),
)


_SECTOR_BYTES = 512  # in the kernel's counters, whatever the device has
_OF_DEVICES: tuple[tuple[str, str, str, Callable[[DiskTraffic], float]], ...] = (
    ("container_fs_reads_merged_total", "counter", "Reads that were merged.", lambda d: d.reads_merged),
    ("container_fs_sector_reads_total", "counter", "Sectors read.", lambda d: d.read_sectors),
    ("container_fs_read_seconds_total", "counter", "Time of all reads.", lambda d: d.read_ms / 1e3),
    ("container_fs_writes_merged_total", "counter", "Writes that were merged.", lambda d: d.writes_merged),
    ("container_fs_sector_writes_total", "counter", "Sectors written.", lambda d: d.written_sectors),
    ("container_fs_write_seconds_total", "counter", "Time of all writes.", lambda d: d.write_ms / 1e3),
    ("container_fs_io_current", "gauge", "Operations that run now.", lambda d: d.in_flight),
    ("container_fs_io_time_seconds_total", "counter", "Time with operations.", lambda d: d.busy_ms / 1e3),
    (
        "container_fs_io_time_weighted_seconds_total",
        "counter",
        "Time of all operations, including running ones.",
        lambda d: d.weighted_ms / 1e3,
    ),
)
"""Series of the machine's block devices: name, kind, help, value."""

_PODS_ENDS = ("veth", "docker", "nerdctl")
"""Name prefixes of network interfaces that cAdvisor leaves out of the machine's series."""


class _Row(NamedTuple):
    """One cgroup, with the labels of its samples.

    `named`: the labels. `labels`: the same, formatted once, since most series add no others. `unit` None: the
    cgroup does not belong to a container or virtual machine.
    """

    named: dict[str, str]
    labels: str
    usage: CgroupUsage
    unit: UnitFigures | None = None


def cadvisor_metrics(figures: Figures, device_name: Callable[[str], str]) -> bytes:
    """Render the measurements as Prometheus text.

    `device_name`: function that returns a block device's path for its numbers, such as ``/dev/sda`` for ``8:0``.
    """
    rows = [*_groups(figures), *_pods(figures), *_units(figures)]
    return render(
        itertools.chain(
            _machine(figures),
            _of_cpu(figures, rows),
            _of_cgroups(rows),
            _of_units(row for row in rows if row.unit is not None),
            _of_disks(figures, rows, device_name),
            _of_filesystems(figures, rows, device_name),
            _of_networks(figures),
        )
    )


def _machine(figures: Figures) -> Iterator[Family]:
    """Yield ``machine_*``, ``cadvisor_version_info`` and ``container_scrape_error``.

    While `figures.machine` is None (not read yet), ``machine_*`` have no labels, and there is no version.
    """
    machine = figures.machine
    labels = ""
    if machine is not None:
        named = {
            "boot_id": machine.boot_id,
            "machine_id": machine.machine_id,
            "system_uuid": machine.system_uuid,
        }
        labels = labels_of(named)
        info = Family("cadvisor_version_info", "gauge", "Kernel and distribution; no cAdvisor runs here.")
        versions = {
            "cadvisorRevision": "",
            "cadvisorVersion": "",
            "dockerVersion": "",
            "kernelVersion": machine.kernel_version,
            "osVersion": machine.os_image,
        }
        info.add(labels_of(versions), 1)
        yield info
    error = Family("container_scrape_error", "gauge", "1 while a runtime does not answer, else 0.")
    error.add("", int(bool(figures.missing)))
    yield error
    for name, text, value in (
        ("machine_cpu_cores", "Logical processors.", figures.host.cores),
        (
            "machine_cpu_physical_cores",
            "Cores, without hyperthreads.",
            machine.physical_cores or None if machine is not None else None,
        ),
        (
            "machine_cpu_sockets",
            "Processor sockets.",
            machine.sockets or None if machine is not None else None,
        ),
        ("machine_memory_bytes", "Memory of the node.", figures.host.memory_capacity_bytes),
        ("machine_swap_bytes", "Swap of the node.", figures.host.swap_capacity_bytes),
    ):
        family = Family(name, "gauge", text)
        family.add(labels, value)
        yield family


def _groups(figures: Figures) -> Iterator[_Row]:
    for group in figures.groups:
        named = _named(id=f"/{group.path}")
        yield _Row(named, labels_of(named), group.usage)


def _pods(figures: Figures) -> Iterator[_Row]:
    for pod in figures.pods:
        if pod.cgroup is not None:
            named = _named(pod)
            yield _Row(named, labels_of(named), pod.cgroup)


def _units(figures: Figures) -> Iterator[_Row]:
    for pod in figures.pods:
        for unit in pod.units:
            named = _named(pod, unit)
            yield _Row(named, labels_of(named), unit.cgroup, unit)


def _named(pod: PodFigures | None = None, unit: UnitFigures | None = None, id: str = "") -> dict[str, str]:
    where = id
    if pod is not None:
        where = f"/{pod.cgroup_path or f'pod{pod.uid}'}"
    if pod is not None and unit is not None:
        where = f"/{unit.cgroup_path}" if unit.cgroup_path else f"/pod{pod.uid}/{unit.id}"
    return {
        "container": unit.name if unit is not None else "",
        "id": where,
        "image": unit.image if unit is not None else "",
        "name": unit.id if unit is not None else "",
        "namespace": pod.namespace if pod is not None else "",
        "pod": pod.name if pod is not None else "",
        "runtime": pod.runtime if pod is not None else "",
    }


def _of_cpu(figures: Figures, rows: Iterable[_Row]) -> Iterator[Family]:
    family = Family("container_cpu_usage_seconds_total", "counter", "Processor time.")
    at_ms = figures.host.at_ns // 1_000_000
    family.add(labels_of({**_named(id="/"), "cpu": "total"}), figures.host.cpu_core_ns / 1e9, at_ms)
    for row in rows:
        labels = with_labels(row.labels, cpu="total")
        if row.unit is None:
            if row.named["id"] != "/":
                family.add(labels, row.usage.cpu_seconds, at_ms)
            continue
        used = row.unit.stats.cpu_usage_core_ns
        family.add(labels, None if used is None else used / 1e9, row.unit.stats.at_ns // 1_000_000)
    yield family


def _of_cgroups(rows: list[_Row]) -> Iterator[Family]:
    for series in SERIES:
        family = Family(series.name, series.kind, series.text)
        better = _OF_UNITS.get(series.name)
        for row in rows:
            is_known_better = better is not None and row.unit is not None
            value = better(row.unit) if is_known_better else series.value(row.usage)  # type: ignore[misc, arg-type]
            family.add(row.labels, value)
        yield family
    failures = Family("container_memory_failures_total", "counter", "Page faults.")
    for kind, scope, count in FAILURES:
        for row in rows:
            value = count(row.usage)
            if value is not None:
                failures.add(with_labels(row.labels, failure_type=kind, scope=scope), value)
    yield failures


def _of_units(rows: Iterable[_Row]) -> Iterator[Family]:
    started = Family("container_start_time_seconds", "gauge", "Start, since the epoch.")
    seen = Family("container_last_seen", "gauge", "Time of the figures.")
    states = Family("container_tasks_state", "gauge", "Processes in this state.")
    families = [Family(name, "gauge", text) for name, text, _ in PROCESSES]
    for row in rows:
        assert row.unit is not None
        started.add(row.labels, row.unit.started_at)
        seen.add(row.labels, row.unit.stats.at_ns // 1_000_000_000)
        for family, (_, _, count) in zip(families, PROCESSES, strict=True):
            family.add(row.labels, count(row.unit.processes))
        for state, number in row.unit.processes.states.items():
            states.add(with_labels(row.labels, state=state), number)
    yield from (started, seen, *families, states)


def _of_disks(figures: Figures, rows: Iterable[_Row], device_name: Callable[[str], str]) -> Iterator[Family]:
    """Yield the traffic of cgroups with disks, and of the machine (id ``/``).

    The machine's is the sum over its devices: cgroup v1 counts no traffic for the root cgroup and, with some I/O
    schedulers, none at all.
    """
    reads = Family("container_fs_reads_total", "counter", "Reads.")
    writes = Family("container_fs_writes_total", "counter", "Writes.")
    read = Family("container_fs_reads_bytes_total", "counter", "Bytes read.")
    written = Family("container_fs_writes_bytes_total", "counter", "Bytes written.")
    devices = functools.cache(device_name)
    for row in rows:
        for disk in row.usage.disks if row.named["id"] != "/" else ():
            labels = with_labels(row.labels, device=devices(disk.device))
            reads.add(labels, disk.reads)
            writes.add(labels, disk.writes)
            read.add(labels, disk.read_bytes)
            written.add(labels, disk.write_bytes)
    machine = [
        (labels_of({**_named(id="/"), "device": devices(numbers)}), disk)
        for numbers, disk in figures.host.disks.items()
    ]
    for labels, traffic in machine:
        reads.add(labels, traffic.reads)
        writes.add(labels, traffic.writes)
        read.add(labels, traffic.read_sectors * _SECTOR_BYTES)
        written.add(labels, traffic.written_sectors * _SECTOR_BYTES)
    yield from (reads, writes, read, written)
    for name, kind, text, value in _OF_DEVICES:
        family = Family(name, kind, text)
        for labels, traffic in machine:
            family.add(labels, value(traffic))
        yield family


def _of_filesystems(
    figures: Figures, rows: Iterable[_Row], device_name: Callable[[str], str]
) -> list[Family]:
    """Return the file system series: of the node (id ``/``), and what containers use of the image file system."""
    used = Family("container_fs_usage_bytes", "gauge", "Written to the filesystem.")
    limit = Family("container_fs_limit_bytes", "gauge", "Size of the filesystem.")
    inodes = Family("container_fs_inodes_total", "gauge", "Inodes of the filesystem.")
    free = Family("container_fs_inodes_free", "gauge", "Its inodes that are free.")
    by_device: dict[str, FsUsage] = {}
    for device, fs in ((figures.root_device, figures.host.fs), (figures.image_device, figures.image_fs)):
        if device and fs is not None:
            by_device[device_name(device)] = fs
    for name, fs in by_device.items():
        labels = labels_of({**_named(id="/"), "device": name})
        used.add(labels, fs.used_bytes)
        limit.add(labels, fs.capacity_bytes)
        inodes.add(labels, fs.inodes)
        free.add(labels, fs.inodes_free)
    image_device = device_name(figures.image_device) if figures.image_device else ""
    for row in rows:
        if row.unit is None or row.unit.stats.fs_used_bytes is None:
            continue
        labels = with_labels(row.labels, device=image_device)
        used.add(labels, row.unit.stats.fs_used_bytes)
        limit.add(labels, figures.image_fs.capacity_bytes if figures.image_fs is not None else None)
    return [used, limit, inodes, free]


def _of_networks(figures: Figures) -> Iterator[Family]:
    named = [
        (_named(id="/"), interface)
        for interface in figures.host.interfaces
        # The host's end of a pod's interface is left out: the pod has samples of its own.
        if not interface.name.startswith(_PODS_ENDS)
    ]
    named += [(_named(pod), interface) for pod in figures.pods for interface in pod.interfaces]
    labelled = [
        (labels_of({**labels, "interface": interface.name}), interface) for labels, interface in named
    ]
    for name, text, value in _NETWORK:
        family = Family(name, "counter", text)
        for labels, interface in labelled:
            family.add(labels, value(interface))
        yield family


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
