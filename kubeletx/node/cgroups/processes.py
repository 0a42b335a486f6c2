"""Counts processes, threads, open files and sockets of one cgroup.

Newer kernels return the number of open files in one call. Sockets are counted by reading the link of each
open file, one call per file. Above `MAX_LINKS` files they are not counted, so that a container with many open
files does not delay a scrape.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from .text import limit_of, number_of, text_of
from .trees import CgroupTrees

MAX_LINKS = 10_000


_STATES: Final = {
    "S": "sleeping",
    "I": "sleeping",
    "R": "running",
    "T": "stopped",
    "t": "stopped",
    "D": "uninterruptible",
}
"""State in ``/proc/PID/stat`` → label ``state`` of cAdvisor's series."""


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of processes, threads, open files and sockets of one cgroup; None: unknown.

    `max_threads`: limit of threads; 0: no limit.
    """

    processes: int | None = None
    threads: int | None = None
    max_threads: int | None = None
    file_descriptors: int | None = None
    sockets: int | None = None
    states: dict[str, int] = {}
    """Number of processes by the state of their main thread: sleeping, running, stopped or uninterruptible."""


def read_processes(
    trees: CgroupTrees, path: str, *, proc: Path = Path("/proc"), max_links: int = MAX_LINKS
) -> ProcessUsage:
    """Count the processes, threads, open files and sockets of the cgroup at `path`, without cgroups below it.

    All are None if the kernel lacks the memory and cpu controllers. `max_links`: largest number of open files at which
    sockets are counted.
    """
    directory = trees.directory("memory", path) or trees.directory("cpu", path)
    if directory is None:
        return ProcessUsage()
    pids = text_of(directory / "cgroup.procs").split()
    counter = trees.directory("pids", path)
    threads = number_of(counter / "pids.current") if counter is not None else None
    if threads is None:
        threads = len(text_of(directory / ("cgroup.threads" if trees.version == 2 else "tasks")).split())
    return ProcessUsage(
        processes=len(pids),
        threads=threads,
        max_threads=limit_of(counter / "pids.max") if counter is not None else None,
        states=_states(proc, pids),
        **_open_files([proc / pid / "fd" for pid in pids], max_links),
    )


def _states(proc: Path, pids: list[str]) -> dict[str, int]:
    counts = dict.fromkeys(_STATES.values(), 0)
    for pid in pids:
        letter = text_of(proc / pid / "stat").rpartition(") ")[2][:1]  # the program's name may hold brackets
        if (state := _STATES.get(letter)) is not None:
            counts[state] += 1
    return counts


def _open_files(directories: list[Path], max_links: int) -> dict[str, int | None]:
    files, sockets = 0, 0
    for directory in directories:
        count = _count(directory)
        files += count
        if files <= max_links and count:
            sockets += _sockets(directory)
    return {"file_descriptors": files, "sockets": sockets if files <= max_links else None}


def _count(directory: Path) -> int:
    try:
        # Since Linux 6.2 the size of /proc/PID/fd is the number of open files; before, it is 0. Source: proc(5).
        return directory.stat().st_size or len(os.listdir(directory))
    except OSError:
        return 0  # the process has ended


def _sockets(directory: Path) -> int:
    count = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    count += os.readlink(entry.path).startswith("socket:")
                except OSError:  # closed since the directory was listed, or the process has ended
                    continue
    except OSError:
        return count
    return count
