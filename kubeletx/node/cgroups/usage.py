"""Reads the kernel's counters of one cgroup: throttling, memory by kind, disk traffic, network of its processes.

Runtimes report processor time and memory; the other values that dashboards show come from these files, in both layouts
of `trees`. A value that the kernel does not count is None. Every read blocks for about ten microseconds; call it in a
thread.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from kubeletx.api import InterfaceStats

from .psi import Pressures, read_pressures
from .text import limit_of, number_of, scaled, table_of, text_of
from .trees import CgroupTrees, cpu_shares

BLOCK_DEVICES = Path("/sys/dev/block")


class BlockDeviceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and operations that a cgroup has read from and written to one block device since the cgroup was made.

    `device`: major and minor number, such as ``8:0``.
    """

    device: str
    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


class CgroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one cgroup, read from the kernel's files. None: unknown; 0: no limit.

    `swap_limit_bytes`: limit of swap without memory; here None may also mean no limit, and 0 that there is no swap, or
    that the kernel does not count it (as in cAdvisor). `swap_file_bytes`: value in
    the kernel's swap limit file, which in v1 limits memory and swap together.
    """

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    cpu_period_us: int | None = None
    memory_limit_bytes: int | None = None
    memory_reservation_bytes: int | None = None
    swap_limit_bytes: int | None = None
    swap_file_bytes: int | None = None


class CgroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one cgroup; None: not counted by this kernel.

    All include the cgroups below this one, except `own_faults` and `own_major_faults` in v1.
    """

    cpu_seconds: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_seconds: float | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    memory_bytes: int | None = None
    max_memory_bytes: int | None = None
    working_set_bytes: int | None = None
    cache_bytes: int | None = None
    rss_bytes: int | None = None
    mapped_bytes: int | None = None
    kernel_bytes: int | None = None
    active_file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    swap_bytes: int | None = None
    memory_failures: int | None = None
    """Number of times that the memory limit was reached."""
    major_faults: int | None = None
    faults: int | None = None
    own_major_faults: int | None = None
    own_faults: int | None = None
    oom_kills: int | None = None
    disks: tuple[BlockDeviceUsage, ...] = ()
    spec: CgroupSpec = CgroupSpec()
    pressures: Pressures = Pressures()


def read_cgroup(trees: CgroupTrees, path: str) -> CgroupUsage:
    """Read the cgroup at `path` (no leading slash); all fields are None if it does not exist."""
    return _read_v2(trees, path) if trees.version == 2 else _read_v1(trees, path)


def read_interfaces(
    trees: CgroupTrees, path: str, *, proc: Path = Path("/proc")
) -> tuple[InterfaceStats, ...]:
    """Return the traffic of the network interfaces in the network namespace of the cgroup's first process.

    Loopback is left out. Empty: the cgroup has no process.
    """
    for name in ("memory", "cpu"):
        directory = trees.directory(name, path)
        if directory is None:
            continue
        pids = text_of(directory / "cgroup.procs").split()
        return parse_net_dev(text_of(proc / pids[0] / "net/dev")) if pids else ()
    return ()


def children(trees: CgroupTrees, path: str) -> tuple[str, ...]:
    """Return the names of the cgroups directly below the one at `path`; empty if it does not exist."""
    directory = trees.directory("memory", path) or trees.directory("cpu", path)
    try:
        return (
            tuple(entry.name for entry in directory.iterdir() if entry.is_dir())
            if directory is not None
            else ()
        )
    except OSError:
        return ()


def own_cgroup(trees: CgroupTrees, *, proc: Path = Path("/proc")) -> str:
    """Return the path of this process's cgroup, without a leading slash; empty for the root cgroup."""
    wanted = "" if trees.version == 2 else "cpuacct"
    for line in text_of(proc / "self/cgroup").split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if wanted in controllers.split(","):
            return path.strip("/")
    return ""


def made_at(trees: CgroupTrees, path: str) -> float:
    """Return the time at which the cgroup was made, in seconds since the epoch; 0.0 if it does not exist."""
    times = []
    for controller in ("memory", "cpu"):
        directory = trees.directory(controller, path)
        with contextlib.suppress(OSError):
            if directory is not None:
                times.append(directory.stat().st_mtime)
    return min(times, default=0.0)


def parse_net_dev(text: str) -> tuple[InterfaceStats, ...]:
    """Parse the content of ``/proc/PID/net/dev``; loopback is left out.

    A container may name an interface with any characters except blanks, ``/`` and ``:``.
    """
    interfaces = []
    for line in text.split("\n")[2:]:
        name, _, rest = line.partition(":")
        name, words = name.strip(" "), [int(word) for word in rest.split() if word.isdecimal()]
        if name == "lo" or len(words) < 12:
            continue
        interfaces.append(
            InterfaceStats(
                name=name,
                rx_bytes=words[0],
                rx_packets=words[1],
                rx_errors=words[2],
                rx_dropped=words[3],
                tx_bytes=words[8],
                tx_packets=words[9],
                tx_errors=words[10],
                tx_dropped=words[11],
            )
        )
    return tuple(interfaces)


def device_name(device: str, *, directory: Path = BLOCK_DEVICES) -> str:
    """Return the path of a block device, such as ``/dev/sda`` for the numbers ``8:0``.

    If the kernel has no name for the device, returns `device` unchanged.
    """
    for line in text_of(directory / device / "uevent").split("\n"):
        key, _, value = line.partition("=")
        if key == "DEVNAME":
            return f"/dev/{value}"
    return device


def _read_v2(trees: CgroupTrees, path: str) -> CgroupUsage:
    cpu, memory = trees.directory("cpu", path), trees.directory("memory", path)
    if cpu is None or memory is None:
        return CgroupUsage()
    times, kinds = table_of(cpu / "cpu.stat"), table_of(memory / "memory.stat")
    happened = table_of(memory / "memory.events")
    used = number_of(memory / "memory.current")
    return CgroupUsage(
        cpu_seconds=scaled(times.get("usage_usec"), 1e-6),
        periods=times.get("nr_periods"),
        throttled_periods=times.get("nr_throttled"),
        throttled_seconds=scaled(times.get("throttled_usec"), 1e-6),
        user_seconds=scaled(times.get("user_usec"), 1e-6),
        system_seconds=scaled(times.get("system_usec"), 1e-6),
        memory_bytes=used,
        max_memory_bytes=number_of(memory / "memory.peak"),
        working_set_bytes=_working_set(used, kinds.get("inactive_file")),
        cache_bytes=kinds.get("file"),
        rss_bytes=kinds.get("anon"),
        mapped_bytes=kinds.get("file_mapped"),
        kernel_bytes=kinds.get("kernel"),
        active_file_bytes=kinds.get("active_file"),
        inactive_file_bytes=kinds.get("inactive_file"),
        swap_bytes=number_of(memory / "memory.swap.current"),
        memory_failures=happened.get("max"),
        major_faults=kinds.get("pgmajfault"),
        faults=kinds.get("pgfault"),
        own_major_faults=kinds.get("pgmajfault"),
        own_faults=kinds.get("pgfault"),
        oom_kills=happened.get("oom_kill"),
        disks=parse_io_stat(text_of(cpu / "io.stat")),
        spec=_spec_v2(cpu, memory),
        pressures=read_pressures(cpu, ".pressure"),
    )


def _read_v1(trees: CgroupTrees, path: str) -> CgroupUsage:
    cpu, account = trees.directory("cpu", path), trees.directory("cpuacct", path)
    memory, disk = trees.directory("memory", path), trees.directory("blkio", path)
    beside = trees.sibling_directory(path)
    times = table_of(cpu / "cpu.stat") if cpu is not None else {}
    spent = table_of(account / "cpuacct.stat") if account is not None else {}
    kinds = table_of(memory / "memory.stat") if memory is not None else {}
    kills = table_of(memory / "memory.oom_control") if memory is not None else {}

    def counted(name: str) -> int | None:
        return number_of(memory / f"memory.{name}") if memory is not None else None

    used = counted("usage_in_bytes")
    return CgroupUsage(
        cpu_seconds=scaled(number_of(account / "cpuacct.usage"), 1e-9) if account is not None else None,
        periods=times.get("nr_periods"),
        throttled_periods=times.get("nr_throttled"),
        throttled_seconds=scaled(times.get("throttled_time"), 1e-9),
        # cpuacct.stat counts in USER_HZ, which is 100 on every architecture that containers run on.
        user_seconds=scaled(spent.get("user"), 0.01),
        system_seconds=scaled(spent.get("system"), 0.01),
        memory_bytes=used,
        max_memory_bytes=counted("max_usage_in_bytes"),
        working_set_bytes=_working_set(used, kinds.get("total_inactive_file")),
        cache_bytes=kinds.get("total_cache"),
        rss_bytes=kinds.get("total_rss"),
        mapped_bytes=kinds.get("total_mapped_file"),
        kernel_bytes=counted("kmem.usage_in_bytes"),
        active_file_bytes=kinds.get("total_active_file"),
        inactive_file_bytes=kinds.get("total_inactive_file"),
        swap_bytes=kinds.get("total_swap"),
        memory_failures=counted("failcnt"),
        major_faults=kinds.get("total_pgmajfault"),
        faults=kinds.get("total_pgfault"),
        own_major_faults=kinds.get("pgmajfault"),
        own_faults=kinds.get("pgfault"),
        oom_kills=kills.get("oom_kill"),
        disks=_disks_v1(disk) if disk is not None else (),
        spec=_spec_v1(cpu, memory),
        pressures=read_pressures(beside, ".pressure") if beside is not None else Pressures(),
    )


def _working_set(used: int | None, inactive_file: int | None) -> int | None:
    """Return the working set as cAdvisor and the kubelet define it: usage minus the inactive file cache."""
    return None if used is None else max(used - (inactive_file or 0), 0)


def _spec_v2(cpu: Path, memory: Path) -> CgroupSpec:
    quota, _, period = text_of(cpu / "cpu.max").strip().partition(" ")
    weight = number_of(cpu / "cpu.weight")
    limit, swap = limit_of(memory / "memory.max"), limit_of(memory / "memory.swap.max")
    is_counted = limit is None or swap is not None
    return CgroupSpec(
        cpu_shares=None if weight is None else cpu_shares(weight),
        cpu_quota_us=int(quota) if quota.isdigit() else (0 if quota == "max" else None),
        cpu_period_us=int(period) if period.isdigit() else None,
        memory_limit_bytes=limit,
        memory_reservation_bytes=limit_of(memory / "memory.min"),
        swap_limit_bytes=number_of(memory / "memory.swap.max") if is_counted else 0,
        swap_file_bytes=swap,
    )


def _spec_v1(cpu: Path | None, memory: Path | None) -> CgroupSpec:
    limit = limit_of(memory / "memory.limit_in_bytes") if memory is not None else None
    both = limit_of(memory / "memory.memsw.limit_in_bytes") if memory is not None else None
    quota = text_of(cpu / "cpu.cfs_quota_us").strip() if cpu is not None else ""
    is_counted = limit is None or both is not None
    return CgroupSpec(
        cpu_shares=number_of(cpu / "cpu.shares") if cpu is not None else None,
        cpu_quota_us=int(quota) if quota.isdigit() else (0 if quota.startswith("-") else None),
        cpu_period_us=number_of(cpu / "cpu.cfs_period_us") if cpu is not None else None,
        memory_limit_bytes=limit,
        memory_reservation_bytes=limit_of(memory / "memory.soft_limit_in_bytes")
        if memory is not None
        else None,
        swap_limit_bytes=(max(both - limit, 0) if limit and both else None) if is_counted else 0,
        swap_file_bytes=both,
    )


def parse_io_stat(text: str) -> tuple[BlockDeviceUsage, ...]:
    """Parse the content of cgroup v2's ``io.stat``; returns the traffic with each block device."""
    devices = []
    for line in filter(None, text.split("\n")):
        device, *words = line.split()
        pairs = (word.partition("=") for word in words)
        values = {
            key: int(value) for key, _, value in pairs if value.isdigit()
        }  # not: depth=max, cost.vrate=99.80
        if values:
            devices.append(
                BlockDeviceUsage(
                    device=device,
                    read_bytes=values.get("rbytes", 0),
                    write_bytes=values.get("wbytes", 0),
                    reads=values.get("rios", 0),
                    writes=values.get("wios", 0),
                )
            )
    return tuple(devices)


def _disks_v1(directory: Path) -> tuple[BlockDeviceUsage, ...]:
    moved = _operations(text_of(directory / "blkio.throttle.io_service_bytes_recursive"))
    asked = _operations(text_of(directory / "blkio.throttle.io_serviced_recursive"))
    return tuple(
        BlockDeviceUsage(
            device=device,
            read_bytes=values.get("Read", 0),
            write_bytes=values.get("Write", 0),
            reads=asked.get(device, {}).get("Read", 0),
            writes=asked.get(device, {}).get("Write", 0),
        )
        for device, values in moved.items()
    )


def _operations(text: str) -> dict[str, dict[str, int]]:
    """Parse one of cgroup v1's ``blkio`` files; returns the values by device, then by operation such as Read."""
    operations: dict[str, dict[str, int]] = {}
    for line in text.split("\n"):
        words = line.split()
        if len(words) == 3:
            operations.setdefault(words[0], {})[words[1]] = int(words[2])
    return operations
