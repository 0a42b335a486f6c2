"""Table of the series of ``/metrics/cadvisor`` that are read from one cgroup: name, kind, help, value.

Names, kinds and units are cAdvisor's. If a value is None, the series has no sample for this cgroup. Source: cAdvisor,
metrics/prometheus.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kubeletx.node.cgroups.processes import ProcessUsage
from kubeletx.node.cgroups.psi import PressureStall
from kubeletx.node.cgroups.usage import CgroupUsage


class Series(NamedTuple):
    """One metric that is read from a cgroup.

    `kind`: counter or gauge. `text`: the help text. `value`: returns the value for a cgroup; None: no sample.
    """

    name: str
    kind: str
    text: str
    value: Callable[[CgroupUsage], float | None]


def _gauge(name: str, text: str, value: Callable[[CgroupUsage], float | None]) -> Series:
    return Series(name, "gauge", text, value)


def _counter(name: str, text: str, value: Callable[[CgroupUsage], float | None]) -> Series:
    return Series(name, "counter", text, value)


def _some(pressure: PressureStall | None) -> float | None:
    return None if pressure is None else pressure.some.total_us / 1e6


def _full(pressure: PressureStall | None) -> float | None:
    return None if pressure is None else pressure.full.total_us / 1e6


SERIES: Final[tuple[Series, ...]] = (
    _counter("container_cpu_user_seconds_total", "Processor time in user mode.", lambda u: u.user_seconds),
    _counter(
        "container_cpu_system_seconds_total", "Processor time in the kernel.", lambda u: u.system_seconds
    ),
    _counter(
        "container_cpu_cfs_periods_total", "Periods of the processor quota.", lambda u: u.periods or None
    ),
    _counter(
        "container_cpu_cfs_throttled_periods_total",
        "Periods in which the quota was used up.",
        lambda u: u.throttled_periods if u.periods else None,
    ),
    _counter(
        "container_cpu_cfs_throttled_seconds_total",
        "Time spent throttled.",
        lambda u: u.throttled_seconds if u.periods else None,
    ),
    _gauge("container_memory_working_set_bytes", "Working set.", lambda u: u.working_set_bytes),
    _gauge("container_memory_usage_bytes", "All memory in use, with caches.", lambda u: u.memory_bytes),
    _gauge("container_memory_max_usage_bytes", "Highest use of memory.", lambda u: u.max_memory_bytes),
    _gauge("container_memory_rss", "Resident memory.", lambda u: u.rss_bytes),
    _gauge("container_memory_cache", "Page cache.", lambda u: u.cache_bytes),
    _gauge("container_memory_mapped_file", "Memory-mapped files.", lambda u: u.mapped_bytes),
    _gauge("container_memory_kernel_usage", "Memory of the kernel.", lambda u: u.kernel_bytes),
    _gauge("container_memory_swap", "Swap in use.", lambda u: u.swap_bytes),
    _gauge("container_memory_total_active_file_bytes", "File cache in use.", lambda u: u.active_file_bytes),
    _gauge(
        "container_memory_total_inactive_file_bytes",
        "File cache not used recently.",
        lambda u: u.inactive_file_bytes,
    ),
    _counter(
        "container_memory_failcnt", "How often memory use reached the limit.", lambda u: u.memory_failures
    ),
    _counter("container_oom_events_total", "Processes killed because memory ran out.", lambda u: u.oom_kills),
    _gauge("container_spec_cpu_period", "Period of the quota.", lambda u: u.spec.cpu_period_us),
    _gauge("container_spec_cpu_quota", "Quota in a period.", lambda u: u.spec.cpu_quota_us or None),
    _gauge("container_spec_cpu_shares", "Share of the processors.", lambda u: u.spec.cpu_shares),
    _gauge("container_spec_memory_limit_bytes", "Limit; 0: none.", lambda u: u.spec.memory_limit_bytes),
    _gauge(
        "container_spec_memory_reservation_limit_bytes",
        "Reservation; 0: none.",
        lambda u: u.spec.memory_reservation_bytes,
    ),
    _gauge(
        "container_spec_memory_swap_limit_bytes",
        "Limit of swap, in v1 of memory and swap together; 0: none.",
        lambda u: u.spec.swap_file_bytes,
    ),
    _counter(
        "container_pressure_cpu_waiting_seconds_total",
        "Time in which at least one task waited for a processor.",
        lambda u: _some(u.pressures.cpu),
    ),
    _counter(
        "container_pressure_cpu_stalled_seconds_total",
        "Time in which all tasks waited for a processor.",
        lambda u: _full(u.pressures.cpu),
    ),
    _counter(
        "container_pressure_memory_waiting_seconds_total",
        "Time in which at least one task waited for memory.",
        lambda u: _some(u.pressures.memory),
    ),
    _counter(
        "container_pressure_memory_stalled_seconds_total",
        "Time in which all tasks waited for memory.",
        lambda u: _full(u.pressures.memory),
    ),
    _counter(
        "container_pressure_io_waiting_seconds_total",
        "Time in which at least one task waited for a disk.",
        lambda u: _some(u.pressures.io),
    ),
    _counter(
        "container_pressure_io_stalled_seconds_total",
        "Time in which all tasks waited for a disk.",
        lambda u: _full(u.pressures.io),
    ),
)

FAILURES: Final[tuple[tuple[str, str, Callable[[CgroupUsage], int | None]], ...]] = (
    ("pgfault", "container", lambda u: u.own_faults),
    ("pgfault", "hierarchy", lambda u: u.faults),
    ("pgmajfault", "container", lambda u: u.own_major_faults),
    ("pgmajfault", "hierarchy", lambda u: u.major_faults),
)
"""Samples of ``container_memory_failures_total``: label ``failure_type``, label ``scope``, function for the value."""

PROCESSES: Final[tuple[tuple[str, str, Callable[[ProcessUsage], int | None]], ...]] = (
    ("container_processes", "Processes.", lambda p: p.processes),
    ("container_threads", "Threads.", lambda p: p.threads),
    ("container_threads_max", "Limit of threads; 0: no limit.", lambda p: p.max_threads),
    ("container_file_descriptors", "Open files.", lambda p: p.file_descriptors),
    ("container_sockets", "Open sockets.", lambda p: p.sockets),
)
