"""Locks that keep a second agent from running: of a state directory, and of a node's name in a file of records.

Two agents with one name would take each other's entries for those of a lost journal, and remove them, while pods use
the volumes. The kernel drops the locks when their process ends, however that happens. All functions block.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kubeletx.api import Conflict, InvalidConfig
from kubeletx.linux.files import private_directory

from ..values import file_stem

_STATE_LOCK: Final = "agent.lock"
_LONGEST_PID: Final = 20


@contextlib.contextmanager
def hold_state(directory: Path) -> Iterator[None]:
    """Make the state directory, and hold its lock.

    Raises InvalidConfig, or Conflict with the PID of the agent that has it.
    """
    try:
        private_directory(directory)
        descriptor = _opened(directory / _STATE_LOCK)
    except OSError as error:
        raise _unusable("--state-dir", directory, error) from error
    with _locked(descriptor, f"has state directory {directory}", "give another --state-dir"):
        yield


@contextlib.contextmanager
def hold_node(records: Path | None, node: str) -> Iterator[None]:
    """Hold the lock of the node's name for a file of records; None: the records are in a cluster, and nothing is held.

    Makes the directory of the file if it is missing. Raises InvalidConfig, or Conflict with the PID of the agent that
    has the name.
    """
    if records is None:
        yield
        return
    try:
        records.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _opened(records.parent / f"{file_stem(node)}.lock")
    except OSError as error:
        raise _unusable("--records", records, error) from error
    with _locked(descriptor, f"is node {node} in {records}", "give each agent a --node-name of its own"):
        yield


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _locked(descriptor: int, what: str, fix: str) -> Iterator[None]:
    """Hold the lock of the open file, which has the PID of its holder, and close it at the end."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, _LONGEST_PID, 0).decode(errors="replace").strip()
            raise Conflict(f"another storage agent, PID {pid}, {what}; stop it, or {fix}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _unusable(option: str, path: Path, error: OSError) -> InvalidConfig:
    return InvalidConfig(
        obj="storage agent", field=option, problem=f"{path}: {error.strerror}", fix="use another one"
    )
