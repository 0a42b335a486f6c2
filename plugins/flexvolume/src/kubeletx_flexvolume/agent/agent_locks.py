"""Locks against a second agent: one on a state directory, one on a node's name in a file of records.

Two agents with one name would treat each other's entries as left by a lost journal, and remove them, while pods use
the volumes. The kernel drops the locks when their process ends, however that happens. All functions block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kubeletx.api import Conflict, InvalidConfig
from kubeletx.linux.files import private_directory
from kubeletx.linux.locks import LockHeld, hold_lock

from ..values import file_stem


@contextlib.contextmanager
def hold_state(directory: Path) -> Iterator[None]:
    """Make the state directory, and hold its lock.

    Raises InvalidConfig, or Conflict with the PID of the agent that has it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(private_directory(directory) / "agent.lock"))
        except LockHeld as error:
            what = f"has state directory {directory}; stop it, or give another --state-dir"
            raise Conflict(f"another storage agent, {error.owner}, {what}") from None
        except OSError as error:
            raise _unusable("--state-dir", directory, error) from error
        yield


@contextlib.contextmanager
def hold_node(records: Path | None, node: str) -> Iterator[None]:
    """Hold the lock of the node's name for a file of records; None: the records are in a cluster, and nothing is held.

    Makes the directory of the file if it is missing. Raises InvalidConfig, or Conflict with the PID of the agent that
    has the name.
    """
    with contextlib.ExitStack() as stack:
        if records is not None:
            try:
                records.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(hold_lock(records.parent / f"{file_stem(node)}.lock"))
            except LockHeld as error:
                what = f"is node {node} in {records}; stop it, or give each agent a --node-name of its own"
                raise Conflict(f"another storage agent, {error.owner}, {what}") from None
            except OSError as error:
                raise _unusable("--records", records, error) from error
        yield


def _unusable(option: str, path: Path, error: OSError) -> InvalidConfig:
    return InvalidConfig(
        obj="storage agent", field=option, problem=f"{path}: {error.strerror}", fix="use another one"
    )
