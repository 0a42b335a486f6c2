"""Daemons of volumes that outlive the agent: found by their PID file, and identified by their command line.

A PID may be used again by another process, so a signal goes to a file descriptor of the process (pidfd_open(2)) whose
command line was checked after it was opened.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def is_running(pid_file: Path, word: str) -> bool:
    """Return True if the process of the PID file runs, and its command line contains `word`."""
    with _process(pid_of(pid_file), word) as descriptor:
        return descriptor is not None


def pid_of(pid_file: Path) -> int:
    """Return the PID in the file; 0 if there is none."""
    try:
        text = pid_file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def daemons_of(program: str, directory: Path) -> dict[int, Path]:
    """Return the PIDs of the processes of a program with an argument that is a path in `directory`, with that path.

    A process that has another directory at this path, such as one in a container, is not among them. Blocks.
    """
    found = {}
    for pid in (int(one.name) for one in _PROC.iterdir() if one.name.isdigit()):
        name, *words = os.fsdecode(_command_line(pid)).split("\0")
        path = next((word for word in words if word.startswith(f"{directory}/")), "")
        if path and Path(name).name == program and _is_same(pid, directory):
            found[pid] = Path(path)
    return found


def end_daemon(pid: int, word: str, *, grace_seconds: float, kill_seconds: float = 3.0) -> bool:
    """End the process with SIGTERM, and after `grace_seconds` with SIGKILL; 0: at once. Blocks.

    Returns True if it has ended, or did not run; also if its command line does not contain `word`.
    """
    with _process(pid, word) as descriptor:
        if descriptor is None:
            return True
        for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, kill_seconds)):
            if number == signal.SIGTERM and seconds <= 0:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            if _has_ended(descriptor, seconds):
                _reap(pid)
                return True
        return False


@contextlib.contextmanager
def _process(pid: int, word: str) -> Iterator[int | None]:
    """Yield a descriptor of the process; None if it does not run, or its command line does not contain `word`."""
    try:
        descriptor = os.pidfd_open(pid) if pid else None
    except OSError:  # no such process
        descriptor = None
    if descriptor is None:
        yield None
        return
    try:
        yield descriptor if os.fsencode(word) in _command_line(pid) else None
    finally:
        os.close(descriptor)


def _command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_same(pid: int, directory: Path) -> bool:
    try:
        return Path(f"{_PROC}/{pid}/root{directory}").samefile(directory)
    except OSError:
        return False


def _has_ended(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _reap(pid: int) -> None:
    """Reap the process if this process is the parent of all orphans, as in a container."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
