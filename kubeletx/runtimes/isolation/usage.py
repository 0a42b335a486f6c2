"""Memory and CPU time of a child process, from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class ChildUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of the child process of one isolated runtime.

    `memory_bytes`: resident memory. `cpu_seconds`: user and system time of the child. `restarts`: number of children
    that were started after the first one.
    """

    pid: int
    memory_bytes: int
    cpu_seconds: float
    restarts: int


def usage_of(pid: int, restarts: int, proc: Path = Path("/proc")) -> ChildUsage | None:
    """Read the usage of the process `pid`; None if it has ended. Blocks briefly."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return None
    fields = stat.rpartition(b")")[2].split()  # the name in parentheses may contain spaces
    ticks = int(fields[11]) + int(fields[12])
    return ChildUsage(
        pid=pid,
        memory_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        cpu_seconds=ticks / os.sysconf("SC_CLK_TCK"),
        restarts=restarts,
    )
