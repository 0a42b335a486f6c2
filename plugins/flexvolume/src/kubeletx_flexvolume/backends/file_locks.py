"""Locks on files that processes of this machine hold, from ``/proc/locks``. Source: proc(5)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")


def is_locked(path: str, locks: Path = _LOCKS) -> bool:
    """Return True if a process has a lock on the file. qemu locks each image that it serves, but for no exclusive use. Blocks."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return False
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(wanted in line.split() for line in locks.read_text().split("\n"))
