"""Reads the usage of the whole machine from the kernel's files.

Each read blocks for well under a millisecond. Memory is defined as in cAdvisor for the root cgroup: usage is the total
minus free memory; the working set is the usage minus the inactive file cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from kubeletx.api import InterfaceStats

from .cgroups.psi import Pressures, read_pressures
from .cgroups.text import read_meminfo, table_of, text_of
from .cgroups.usage import parse_net_dev

_USED = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat that count as CPU usage: user, nice, system, irq, softirq, steal."""


class FsUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one file system, in bytes and inodes."""

    capacity_bytes: int
    available_bytes: int
    used_bytes: int
    inodes: int
    inodes_free: int


class DiskTraffic(NamedTuple):
    """Counters of one block device since the boot, in the order of ``/proc/diskstats`` after the device's name.

    Times are in milliseconds. `in_flight`: operations that run now.
    """

    reads: int
    reads_merged: int
    read_sectors: int
    read_ms: int
    writes: int
    writes_merged: int
    written_sectors: int
    write_ms: int
    in_flight: int
    busy_ms: int
    weighted_ms: int


class HostUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the whole machine.

    `at_ns`: time of the measurement, in nanoseconds since the epoch. `booted_at`: in seconds since the epoch.
    `cpu_core_ns`: CPU time used since the boot. `disks`: traffic of each block device that was used, by its numbers such
    as ``8:0``. `fs`: the node's file system; None: it cannot be read.
    """

    at_ns: int
    booted_at: float
    cpu_core_ns: int
    cores: int
    memory_capacity_bytes: int
    memory_usage_bytes: int
    memory_working_set_bytes: int
    memory_rss_bytes: int
    swap_capacity_bytes: int
    swap_usage_bytes: int
    page_faults: int
    major_page_faults: int
    interfaces: tuple[InterfaceStats, ...] = ()
    disks: dict[str, DiskTraffic] = {}
    fs: FsUsage | None = None
    pressures: Pressures = Pressures()


def read_host(root_dir: Path, *, proc: Path = Path("/proc")) -> HostUsage:
    """Read the machine's usage.

    `root_dir`: the agent's root directory. The file system that contains it is reported as the node's (nodefs).
    """
    stat = (proc / "stat").read_text()
    first, *rest = stat.split("\n")
    ticks = [int(word) for word in first.split()[1:]]
    booted = next((line.split()[1] for line in rest if line.startswith("btime ")), "0")
    memory = read_meminfo(proc / "meminfo")
    counts = table_of(proc / "vmstat")
    total, free = memory.get("MemTotal", 0), memory.get("MemFree", 0)
    used = total - free
    swap = memory.get("SwapTotal", 0)
    return HostUsage(
        at_ns=time.time_ns(),
        booted_at=float(booted),
        cpu_core_ns=sum(ticks[at] for at in _USED if at < len(ticks))
        * (1_000_000_000 // os.sysconf("SC_CLK_TCK")),
        cores=os.cpu_count() or 1,
        memory_capacity_bytes=total,
        memory_usage_bytes=used,
        memory_working_set_bytes=max(used - memory.get("Inactive(file)", 0), 1),
        memory_rss_bytes=memory.get("AnonPages", 0),
        swap_capacity_bytes=swap,
        swap_usage_bytes=swap - memory.get("SwapFree", 0),
        page_faults=counts.get("pgfault", 0),
        major_page_faults=counts.get("pgmajfault", 0),
        interfaces=parse_net_dev((proc / "net/dev").read_text(errors="replace")),
        disks=dict(_disks(text_of(proc / "diskstats"))),
        fs=read_fs(root_dir),
        pressures=read_pressures(proc / "pressure"),
    )


def device_of(path: Path) -> str:
    """Return the block device of the file system that contains `path`, as numbers such as ``8:1``.

    Empty: the path cannot be read.
    """
    try:
        device = path.stat().st_dev
    except OSError:
        return ""
    return f"{os.major(device)}:{os.minor(device)}"


def read_fs(path: Path) -> FsUsage | None:
    """Return the usage of the file system that contains `path`; None if it cannot be read."""
    try:
        fs = os.statvfs(path)
    except OSError:
        return None
    size = fs.f_frsize
    return FsUsage(
        capacity_bytes=fs.f_blocks * size,
        # f_bavail and not f_bfree: blocks that are reserved for root are not available to pods.
        available_bytes=fs.f_bavail * size,
        used_bytes=(fs.f_blocks - fs.f_bfree) * size,
        inodes=fs.f_files,
        inodes_free=fs.f_ffree,
    )


def _disks(text: str) -> Iterator[tuple[str, DiskTraffic]]:
    for line in text.split("\n"):
        major, minor, _, *words = line.split() or ("", "", "")
        if len(words) >= len(DiskTraffic._fields):
            traffic = DiskTraffic(*map(int, words[: len(DiskTraffic._fields)]))
            if traffic.reads or traffic.writes:
                yield f"{major}:{minor}", traffic
