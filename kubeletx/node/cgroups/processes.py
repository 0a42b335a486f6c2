"""Counts processes, threads, open files and sockets of one cgroup.

Newer kernels return the number of open files in one call. Sockets are counted by reading the link of each
open file, one call per file. Above `MAX_LINKS` files they are not counted, so that a container with many open
files does not delay a scrape.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from .text import limit_of, number_of, text_of
from .trees import CgroupTrees

MAX_LINKS = 10_000


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of processes, threads, open files and sockets of one cgroup; None: unknown.

    `max_threads`: limit of threads; 0: no limit.
    """

    processes: int | None = None
    threads: int | None = None
    max_threads: int | None = None
    file_descriptors: int | None = None
    sockets: int | None = None


def read_processes(trees: CgroupTrees, path: str, *, proc: Path = Path("/proc")) -> ProcessUsage:
    """Count the processes, threads, open files and sockets of the cgroup at `path`, without cgroups below it.

    All are None if the kernel lacks the memory and cpu controllers.
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
        **_open_files([proc / pid / "fd" for pid in pids]),
    )


def _open_files(directories: list[Path]) -> dict[str, int | None]:
    files, sockets = 0, 0
    for directory in directories:
        count = _count(directory)
        files += count
        if files <= MAX_LINKS and count:
            sockets += _sockets(directory)
    return {"file_descriptors": files, "sockets": sockets if files <= MAX_LINKS else None}


def _count(directory: Path) -> int:
    try:
        return directory.stat().st_size or len(os.listdir(directory))
    except OSError:
        return 0  # the process has ended


def _sockets(directory: Path) -> int:
    found = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    found += os.readlink(entry.path).startswith("socket:")
                except OSError:  # closed since the directory was listed, or the process has ended
                    continue
    except OSError:
        return found
    return found
