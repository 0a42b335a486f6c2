"""File locks that the kernel drops when the last process that has the file open has ended. Source: flock(2).

A child that inherits the descriptor of a lock keeps it: also if the child hangs in the kernel and survives SIGKILL, and
also if this process was killed. The error of a lock that is held names the processes that have the file open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kubeletx.api.errors import Conflict

_PROC: Final = Path("/proc")
_LONGEST_COMMAND: Final = 200


class LockHeld(Conflict):
    """Another process holds the lock. `owner`: text such as ``PID 7 (mkfs.ext4 /dev/loop3)``."""

    def __init__(self, path: Path) -> None:
        self.owner = lock_owner(path)
        super().__init__(f"{path} is locked by {self.owner}")


@contextlib.contextmanager
def hold_lock(path: Path, *, waits: bool = False) -> Iterator[int]:
    """Hold the exclusive lock of the file, which is made if it is missing, and yield its descriptor. Blocks.

    `waits`: until it is free; otherwise raises LockHeld. Raises OSError if the file cannot be opened.
    """
    descriptor = take_lock(path, waits=waits)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_lock(path: Path, *, waits: bool = False) -> int:
    """Return the descriptor of a lock as in `hold_lock`; closing it releases the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(descriptor, path, waits=waits)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_descriptor(descriptor: int, path: Path, *, waits: bool = False) -> None:
    """Lock an open file or directory. `path`: of the file, for the error. Otherwise as `hold_lock`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        raise LockHeld(path) from None


def lock_owner(path: Path) -> str:
    """Describe the processes that have the file open, without this one."""
    owners = ", ".join(f"PID {pid} ({_command(pid)})" for pid in lock_holders(path))
    return owners or "a process that is not visible here"


def lock_holders(path: Path) -> tuple[int, ...]:
    """Return the IDs of the processes that have the file open, without this one."""
    wanted = path.stat()
    pids = (int(name) for name in os.listdir(_PROC) if name.isdigit())
    return tuple(pid for pid in sorted(pids) if pid != os.getpid() and _has_open(pid, wanted))


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        for link in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(link.stat(), wanted):
                    return True
    except OSError:  # the process has ended
        pass
    return False


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        text = b" ".join(words).decode(errors="replace") or (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "ended"
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."
