"""What the kernel counted for one cgroup: throttling, kinds of memory, disk traffic, and the network of its processes.

Runtimes report processor time and memory; the rest of what dashboards show stands in these files, in both layouts of
`cgroup_fs`. What the kernel does not count stays None. Everything here blocks for some ten microseconds a file; call it
in a thread.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeletx.api import InterfaceStats

from .cgroup_fs import CgroupTrees

BLOCK_DEVICES = Path("/sys/dev/block")


class DiskUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic with one block device since the cgroup was made. `device`: ``8:0``."""

    device: str
    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


class CgroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """None: not counted here."""

    periods: int | None = None
    throttled_periods: int | None = None
    throttled_seconds: float | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    cache_bytes: int | None = None
    rss_bytes: int | None = None
    mapped_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None
    faults: int | None = None
    oom_kills: int | None = None
    disks: tuple[DiskUsage, ...] = ()


def read_cgroup(trees: CgroupTrees, path: str) -> CgroupUsage:
    """Of the cgroup at `path`, without a leading slash; all None if there is none."""
    return _read_v2(trees, path) if trees.version == 2 else _read_v1(trees, path)


def read_interfaces(
    trees: CgroupTrees, path: str, *, proc: Path = Path("/proc")
) -> tuple[InterfaceStats, ...]:
    """Interfaces of the network namespace that the first process in the cgroup lives in, but the loopback."""
    for name in ("memory", "cpu"):
        directory = trees.directory(name, path)
        if directory is None:
            continue
        pids = _text(directory / "cgroup.procs").split()
        return parse_net_dev(_text(proc / pids[0] / "net/dev")) if pids else ()
    return ()


def children(trees: CgroupTrees, path: str) -> tuple[str, ...]:
    """Names of the cgroups directly below."""
    directory = trees.directory("memory", path) or trees.directory("cpu", path)
    try:
        return tuple(one.name for one in directory.iterdir() if one.is_dir()) if directory is not None else ()
    except OSError:
        return ()


def parse_net_dev(text: str) -> tuple[InterfaceStats, ...]:
    """The lines of ``/proc/PID/net/dev``. Containers name their interfaces, with all but blanks, ``/`` and ``:``."""
    found = []
    for line in text.split("\n")[2:]:
        name, _, rest = line.partition(":")
        name, words = name.strip(" "), [int(word) for word in rest.split() if word.isdecimal()]
        if name == "lo" or len(words) < 12:
            continue
        found.append(
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
    return tuple(found)


def device_name(device: str, *, directory: Path = BLOCK_DEVICES) -> str:
    """``/dev/sda`` of ``8:0``; the numbers themselves where the kernel does not tell."""
    for line in _text(directory / device / "uevent").split("\n"):
        key, _, value = line.partition("=")
        if key == "DEVNAME":
            return f"/dev/{value}"
    return device


def _read_v2(trees: CgroupTrees, path: str) -> CgroupUsage:
    cpu, memory = trees.directory("cpu", path), trees.directory("memory", path)
    if cpu is None or memory is None:
        return CgroupUsage()
    times, kinds = _table(cpu / "cpu.stat"), _table(memory / "memory.stat")
    return CgroupUsage(
        periods=times.get("nr_periods"),
        throttled_periods=times.get("nr_throttled"),
        throttled_seconds=_scaled(times.get("throttled_usec"), 1e-6),
        user_seconds=_scaled(times.get("user_usec"), 1e-6),
        system_seconds=_scaled(times.get("system_usec"), 1e-6),
        cache_bytes=kinds.get("file"),
        rss_bytes=kinds.get("anon"),
        mapped_bytes=kinds.get("file_mapped"),
        swap_bytes=_number(memory / "memory.swap.current"),
        major_faults=kinds.get("pgmajfault"),
        faults=kinds.get("pgfault"),
        oom_kills=_table(memory / "memory.events").get("oom_kill"),
        disks=parse_io_stat(_text(cpu / "io.stat")),
    )


def _read_v1(trees: CgroupTrees, path: str) -> CgroupUsage:
    cpu, account = trees.directory("cpu", path), trees.directory("cpuacct", path)
    memory, disk = trees.directory("memory", path), trees.directory("blkio", path)
    times = _table(cpu / "cpu.stat") if cpu is not None else {}
    spent = _table(account / "cpuacct.stat") if account is not None else {}
    kinds = _table(memory / "memory.stat") if memory is not None else {}
    kills = _table(memory / "memory.oom_control") if memory is not None else {}
    return CgroupUsage(
        periods=times.get("nr_periods"),
        throttled_periods=times.get("nr_throttled"),
        throttled_seconds=_scaled(times.get("throttled_time"), 1e-9),
        user_seconds=_scaled(spent.get("user"), 0.01),
        system_seconds=_scaled(spent.get("system"), 0.01),
        cache_bytes=kinds.get("total_cache"),
        rss_bytes=kinds.get("total_rss"),
        mapped_bytes=kinds.get("total_mapped_file"),
        swap_bytes=kinds.get("total_swap"),
        major_faults=kinds.get("total_pgmajfault"),
        faults=kinds.get("total_pgfault"),
        oom_kills=kills.get("oom_kill"),
        disks=_disks_v1(disk) if disk is not None else (),
    )


def parse_io_stat(text: str) -> tuple[DiskUsage, ...]:
    """The lines of v2's ``io.stat``."""
    found = []
    for line in filter(None, text.split("\n")):
        device, *words = line.split()
        pairs = (word.partition("=") for word in words)
        values = {
            key: int(value) for key, _, value in pairs if value.isdigit()
        }  # not: depth=max, cost.vrate=99.80
        if values:
            found.append(
                DiskUsage(
                    device=device,
                    read_bytes=values.get("rbytes", 0),
                    write_bytes=values.get("wbytes", 0),
                    reads=values.get("rios", 0),
                    writes=values.get("wios", 0),
                )
            )
    return tuple(found)


def _disks_v1(directory: Path) -> tuple[DiskUsage, ...]:
    moved = _operations(_text(directory / "blkio.throttle.io_service_bytes_recursive"))
    asked = _operations(_text(directory / "blkio.throttle.io_serviced_recursive"))
    return tuple(
        DiskUsage(
            device=device,
            read_bytes=values.get("Read", 0),
            write_bytes=values.get("Write", 0),
            reads=asked.get(device, {}).get("Read", 0),
            writes=asked.get(device, {}).get("Write", 0),
        )
        for device, values in moved.items()
    )


def _operations(text: str) -> dict[str, dict[str, int]]:
    """Device to operation to value, of v1's ``blkio`` files."""
    found: dict[str, dict[str, int]] = {}
    for line in text.split("\n"):
        words = line.split()
        if len(words) == 3:
            found.setdefault(words[0], {})[words[1]] = int(words[2])
    return found


def _table(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).split("\n"))
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _text(path: Path) -> str:
    """Empty for what is not there (any more)."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
