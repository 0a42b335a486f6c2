"""Finds processes that were killed while their container is frozen and that end when it is thawed.

With the freezer of cgroup v1, a frozen process does not act on any signal. A process that was killed, by an operator
or by the kernel for lack of memory, is shown as alive and has a pending SIGKILL: the kernel adds it to each thread of
the process for every signal that ends the process. On cgroup v2 a frozen process ends at once. Source:
kernel/signal.c, complete_signal; proc(5), SigPnd and ShdPnd.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubeletx.api import Clock

ENDED_SECONDS = 2.0
"""Longest wait for the end of killed processes after their thaw."""
_LOOK_SECONDS = 0.005
_KILL = 1 << (signal.SIGKILL - 1)
_PENDING = re.compile(rb"^S(?:ig|hd)Pnd:\s*([0-9a-f]+)", re.MULTILINE)
_ENDED = ("Z", "X")


def processes(directory: Path) -> Iterator[int]:
    """Yield the ids of all processes in a cgroup and in those below it; nothing if it is gone."""
    try:
        # Two links: there is no cgroup below. A walk would cost more than all else here.
        paths = (
            [str(directory)] if directory.stat().st_nlink == 2 else [path for path, *_ in os.walk(directory)]
        )
    except OSError:
        return  # removed meanwhile
    for path in paths:
        yield from map(int, _read(f"{path}/cgroup.procs").split())


def find_killed(directory: Path, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Return the ids of processes in a cgroup, and in those below it, that have a pending SIGKILL."""
    return tuple(pid for pid in processes(directory) if _has_pending_kill(_read(f"{proc}/{pid}/status")))


async def wait_ended(pids: Iterable[int], clock: Clock, proc: Path = Path("/proc")) -> None:
    """Wait until the processes have ended, at most `ENDED_SECONDS`."""
    deadline = clock.monotonic() + ENDED_SECONDS
    while any(_is_alive(proc / str(pid) / "stat") for pid in pids) and clock.monotonic() < deadline:
        await clock.sleep(_LOOK_SECONDS)


def _has_pending_kill(status: bytes) -> bool:
    return any(int(mask, 16) & _KILL for mask in _PENDING.findall(status))


def _read(file: str) -> bytes:
    """Return the content of a file; empty if the process or the cgroup is gone."""
    try:
        with Path(file).open("rb", buffering=0) as opened:
            return opened.read()
    except OSError:
        return b""


def _is_alive(file: Path) -> bool:
    try:
        return file.read_text().rpartition(")")[2].split()[0] not in _ENDED
    except OSError:
        return False
