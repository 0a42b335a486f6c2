"""File locks of volumes: at most one program works on a volume, also across restarts of the agent.

A program that the agent starts for a volume inherits the open lock file. The kernel drops the lock when the last
process that has the file open has ended. So the volume remains locked as long as a program of it runs: also if the
program hangs in the kernel and survives SIGKILL, and also if the agent that started it was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kubeletx.api import Unavailable

from .files import file_stem

_PROC = Path("/proc")
_LONGEST = 200


@contextlib.contextmanager
def hold_lock(directory: Path, volume: str) -> Iterator[int]:
    """Hold the lock file of the volume, and yield its descriptor for programs to inherit.

    Raises Unavailable, which names the process, if another one holds it.
    """
    path = directory / f"{file_stem(volume)}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"volume {volume} is locked by {_holder(path)}, which has not ended") from None
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    """Describe the processes that have the lock file open, without this one."""
    wanted = path.stat()
    found = []
    for process in _PROC.iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process, wanted):
            found.append(f"PID {process.name} ({_command(process)})")
    return ", ".join(found) or "a process that is not visible here"


def _has_open(process: Path, wanted: os.stat_result) -> bool:
    try:
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(one.stat(), wanted):
                    return True
    except OSError:  # the process has ended
        pass
    return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        text = b" ".join(words).decode(errors="replace") or (process / "comm").read_text().strip()
    except OSError:
        return "ended"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
