"""``/metrics/cadvisor``: the series that dashboards of containers are built on.

Names and labels are cAdvisor's, plus ``runtime``; which series there are follows kubernetes-mixin. A machine has what
its runtime measures. Network counters belong to the pod, so they carry no container.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import InterfaceStats

from .exposition import Family, labels_of, render
from .figures import Figures, PodFigures, UnitFigures
from .resource_metrics import memory_of

_PERIOD_US = 100_000

_UNIT: tuple[tuple[str, str, str, Callable[[UnitFigures], float | None]], ...] = (
    ("container_memory_working_set_bytes", "gauge", "Working set.", lambda u: memory_of(u.stats)),
    (
        "container_memory_usage_bytes",
        "gauge",
        "All memory in use, with caches.",
        lambda u: _known(u.stats.memory_usage_bytes, memory_of(u.stats)),
    ),
    (
        "container_memory_rss",
        "gauge",
        "Resident memory.",
        lambda u: u.cgroup.rss_bytes if u.cgroup.rss_bytes is not None else u.stats.memory_rss_bytes,
    ),
    ("container_memory_cache", "gauge", "Page cache.", lambda u: u.cgroup.cache_bytes),
    (
        "container_memory_mapped_file",
        "gauge",
        "Memory-mapped files.",
        lambda u: u.cgroup.mapped_bytes,
    ),
    (
        "container_memory_swap",
        "gauge",
        "Swap in use.",
        lambda u: u.cgroup.swap_bytes if u.cgroup.swap_bytes is not None else u.stats.swap_usage_bytes,
    ),
    (
        "container_cpu_user_seconds_total",
        "counter",
        "Processor time in user mode.",
        lambda u: u.cgroup.user_seconds,
    ),
    (
        "container_cpu_system_seconds_total",
        "counter",
        "Processor time in the kernel.",
        lambda u: u.cgroup.system_seconds,
    ),
    (
        "container_cpu_cfs_periods_total",
        "counter",
        "Periods of the processor quota.",
        lambda u: u.cgroup.periods,
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Periods in which the quota was used up.",
        lambda u: u.cgroup.throttled_periods,
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Time spent throttled.",
        lambda u: u.cgroup.throttled_seconds,
    ),
    (
        "container_oom_events_total",
        "counter",
        "Processes killed for want of memory.",
        lambda u: u.cgroup.oom_kills,
    ),
    ("container_fs_usage_bytes", "gauge", "Written to the root filesystem.", lambda u: u.stats.fs_used_bytes),
    ("container_start_time_seconds", "gauge", "Start, since the epoch.", lambda u: u.started_at),
    ("container_last_seen", "gauge", "Time of the figures.", lambda u: u.stats.at_ns // 1_000_000_000),
    ("container_spec_memory_limit_bytes", "gauge", "Limit; 0: none.", lambda u: u.memory_limit_bytes),
    ("container_spec_cpu_period", "gauge", "Period of the quota.", lambda u: _PERIOD_US),
    (
        "container_spec_cpu_quota",
        "gauge",
        "Quota in a period.",
        lambda u: u.cpu_limit_millicores * _PERIOD_US // 1000 or None,
    ),
)

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


def cadvisor_metrics(figures: Figures, device_name: Callable[[str], str]) -> bytes:
    """The text. `device_name`: of a block device by its numbers."""
    return render(
        [
            *_of_machine(figures),
            *_of_cpu(figures),
            *_of_units(figures),
            *_of_disks(figures, device_name),
            *_of_networks(figures),
        ]
    )


def _labels(pod: PodFigures, unit: UnitFigures | None = None, **more: str) -> str:
    labels = {"namespace": pod.namespace, "pod": pod.name, "runtime": pod.runtime}
    if unit is None:
        labels = {"container": "", "id": f"/pod{pod.uid}", "image": "", "name": "", **labels}
    else:
        labels = {
            "container": unit.name,
            "id": f"/pod{pod.uid}/{unit.id}",
            "image": unit.image,
            "name": unit.id,
            **labels,
        }
    return labels_of({**labels, **more})


def _of_machine(figures: Figures) -> list[Family]:
    cores = Family("machine_cpu_cores", "gauge", "Logical processors of the node.")
    cores.add("", figures.host.cores)
    memory = Family("machine_memory_bytes", "gauge", "Memory of the node.")
    memory.add("", figures.host.memory_capacity_bytes)
    return [cores, memory]


def _of_cpu(figures: Figures) -> list[Family]:
    family = Family("container_cpu_usage_seconds_total", "counter", "Processor time.")
    root = labels_of(
        {"container": "", "cpu": "total", "id": "/", "image": "", "name": "", "namespace": "", "pod": ""}
    )
    family.add(root, figures.host.cpu_core_ns / 1e9, figures.host.at_ns // 1_000_000)
    for pod in figures.pods:
        for unit in pod.units:
            used = unit.stats.cpu_usage_core_ns
            seconds = None if used is None else used / 1e9
            family.add(_labels(pod, unit, cpu="total"), seconds, unit.stats.at_ns // 1_000_000)
    return [family]


def _of_units(figures: Figures) -> list[Family]:
    families = []
    labelled = [(_labels(pod, unit), unit) for pod in figures.pods for unit in pod.units]
    for name, kind, text, value in _UNIT:
        family = Family(name, kind, text)
        for labels, unit in labelled:
            family.add(labels, value(unit))
        families.append(family)
    return families


def _of_disks(figures: Figures, device_name: Callable[[str], str]) -> list[Family]:
    reads = Family("container_fs_reads_total", "counter", "Reads.")
    writes = Family("container_fs_writes_total", "counter", "Writes.")
    read = Family("container_fs_reads_bytes_total", "counter", "Bytes read.")
    written = Family("container_fs_writes_bytes_total", "counter", "Bytes written.")
    for pod in figures.pods:
        for unit in pod.units:
            for disk in unit.cgroup.disks:
                labels = _labels(pod, unit, device=device_name(disk.device))
                reads.add(labels, disk.reads)
                writes.add(labels, disk.writes)
                read.add(labels, disk.read_bytes)
                written.add(labels, disk.write_bytes)
    return [reads, writes, read, written]


def _of_networks(figures: Figures) -> list[Family]:
    families = []
    labelled = [(_labels(pod, interface=one.name), one) for pod in figures.pods for one in pod.interfaces]
    for name, text, value in _NETWORK:
        family = Family(name, "counter", text)
        for labels, interface in labelled:
            family.add(labels, value(interface))
        families.append(family)
    return families


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
