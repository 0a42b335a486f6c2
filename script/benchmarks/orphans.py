"""Reaps emulators at once when they end, whatever the system's first process (PID 1) does.

libvirt's emulators detach from the process that starts them, and the system's first process reaps them. A machine
counts as ended when its emulator was reaped. Some first processes, such as those of containers and build machines,
reap only every second or two; this wait would be most of the time of a deletion, and random.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from kubeletx.linux.processes import read_stat

_PR_SET_CHILD_SUBREAPER = 36
_EMULATOR = "qemu-system-"
"""Beginning of an emulator's name."""


@contextmanager
def emulators_reaped() -> Iterator[None]:
    """Context manager: this process adopts and reaps emulators that daemons below it start.

    For the main thread only.
    """
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
    """Handle SIGCHLD: reap adopted emulators only; the code that started other children waits for them."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                if (stat := read_stat(pid)) is not None and stat.name.startswith(_EMULATOR):
                    os.waitpid(int(pid), os.WNOHANG)
