"""Emulators that ended are reaped at once, whatever the first process of this system does.

libvirt's emulators detach from the process that starts them, and the system's first process reaps them. A
machine counts as ended when its emulator was reaped. Some first processes, such as those of containers and build
machines, reap only every second or two; this wait would be most of the time of a deletion, and random.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_PR_SET_CHILD_SUBREAPER = 36
_EMULATOR = "(qemu-system-"
"""How the second field of /proc/PID/stat begins."""


@contextmanager
def emulators_reaped() -> Iterator[None]:
    """Adopt emulators that daemons below this process start from now on. For the main thread."""
    before = signal.signal(signal.SIGCHLD, _reap)
    _adopt_orphans(True)
    try:
        yield
    finally:
        _adopt_orphans(False)
        signal.signal(signal.SIGCHLD, before)


def _adopt_orphans(wanted: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the parent of orphans")


def _reap(_signal: int, _frame: FrameType | None) -> None:
    """Reap adopted emulators only: other children are waited for by the code that started them."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().split()[1].startswith(_EMULATOR):
                    os.waitpid(int(pid), os.WNOHANG)
