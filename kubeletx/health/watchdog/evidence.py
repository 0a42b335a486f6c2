"""Evidence about an agent without a sign of life: its stack, and whether the kernel killed a process for lack of memory.

An agent that can show its stack has a handler of SIGUSR1 that writes it to RUN/NAME.stack, see `client.stack_on_signal`.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubeletx.linux.files import read_regular
from kubeletx.linux.processes import PROC

STACK_BYTES: Final = 512 * 1024
KERNEL_LOG: Final = Path("/dev/kmsg")
_KERNEL_LOG_BYTES: Final = 4 << 20
_RECORD: Final = re.compile(r"\d+,\d+,(\d+),[^;]*;.*\bKilled process (\d+) \((.*?)\)")
_AT_LIMIT: Final = re.compile(
    r"oom-kill:constraint=CONSTRAINT_MEMCG,.*\boom_memcg=[^,]*/kubepods.*,pid=(\d+),"
)
"""A process of a pod that reached the pod's own limit: other processes did not lack memory."""
_SLACK_SECONDS: Final = 60
"""An agent hangs some time after the kernel has killed what it needs."""


def ask_stack(pid: int | None, proc: Path = PROC) -> bool:
    """Send SIGUSR1 to a process that has a handler for it; without one the signal would end it. False: not sent."""
    if pid is None or pid <= 1 or pid == os.getpid():
        return False
    with suppress(OSError, ValueError, IndexError):
        status = (proc / str(pid) / "status").read_text(errors="replace")
        caught = int(status.partition("\nSigCgt:")[2].split()[0], 16)
        if caught >> (signal.SIGUSR1 - 1) & 1:
            os.kill(pid, signal.SIGUSR1)
            return True
    return False


def read_stack(path: Path) -> str:
    """Return the end of a stack file; empty if there is none."""
    try:
        return read_regular(path, STACK_BYTES).decode(errors="replace").strip("\0\n ")
    except OSError:
        return ""


def out_of_memory(age_seconds: int, path: Path = KERNEL_LOG) -> str:
    """Return the last line of the kernel's log about a process that was killed for lack of memory; empty if there is none.

    A process of a pod that was killed at the pod's own limit does not count.

    `age_seconds`: how far back it counts. Source: Documentation/ABI/testing/dev-kmsg.
    """
    oldest = time.monotonic() - age_seconds - _SLACK_SECONDS
    found = at_limit = ""
    for line in _kernel_log(path).split("\n"):
        if "oom-kill:" in line:  # stands before the record of the process that is killed
            limited = _AT_LIMIT.search(line)
            at_limit = limited[1] if limited is not None else ""
        match = _RECORD.match(line)
        if match is not None and int(match[1]) / 1_000_000 >= oldest and match[2] != at_limit:
            found = f"the kernel killed process {match[2]} ({match[3]}) for lack of memory"
    return found


def _kernel_log(path: Path) -> str:
    records: list[bytes] = []
    size = 0
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while size < _KERNEL_LOG_BYTES:
                try:
                    record = os.read(descriptor, 8192)
                except BrokenPipeError:
                    continue  # the oldest record was overwritten meanwhile; the next one is read
                if not record:
                    break
                records.append(record)
                size += len(record)
        finally:
            os.close(descriptor)
    return b"".join(records).decode(errors="replace")
