"""State, parent, CPU time and memory of processes and threads, from ``/proc/PID/stat``. Source: proc(5)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
ENDED: Final = ("Z", "X")
"""States of a process that has ended, and for which its parent may not have waited."""


class ProcessStat(NamedTuple):
    """State, time and memory of a process, as the kernel counts them.

    `name`: of the program, at most 15 bytes. `state`: one letter, such as R, S, D, T or Z. `cpu_ticks`: user and system
    time of all threads; `children_ticks`: of children that were waited for. `started_ticks`: since the boot; a process
    with the same ID and start is the same process. Ticks are clock ticks (`TICKS_PER_SECOND`).
    """

    name: str
    state: str
    parent: int
    group: int
    cpu_ticks: int
    children_ticks: int
    started_ticks: int
    virtual_bytes: int
    resident_bytes: int


def read_stat(pid: int | str, proc: Path = PROC) -> ProcessStat | None:
    """Read the file of a process, or of a thread by its ID; None if it does not exist or cannot be read.

    `pid` may be ``self``. `proc`: where procfs is mounted.
    """
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")  # the name may contain blanks and brackets
    fields = rest.split()
    if len(fields) < 22:
        return None
    return ProcessStat(
        name=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        started_ticks=int(fields[19]),
        virtual_bytes=int(fields[20]),
        resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )
