"""Finds and removes cgroups of containers and agents in every hierarchy (v1, hybrid and v2), and finds their
processes.

A container's cgroup is recognised by the last element of its path: the id itself (cgroupfs) or
``PREFIX-ID.scope`` (systemd). Its processes are therefore found regardless of their parent process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from .process import list_pids

_CGROUPS = Path("/sys/fs/cgroup")


def remove_cgroups(root: str) -> None:
    """Remove a cgroup and all below it in every hierarchy; those that still contain processes stay."""
    for path in cgroups_below(root):
        remove_cgroup(path)


def remove_empty_default_cgroups() -> None:
    """Remove ``k8s.io``, where containerd puts pods whose cgroup parent is not set; it stays while it is in
    use.
    """
    for path in (_CGROUPS / "k8s.io", *_CGROUPS.glob("*/k8s.io")):
        try:
            path.rmdir()
        except OSError:  # missing, or in use by containers
            pass


def list_container_cgroups(ids: set[str]) -> list[Path]:
    """Return the cgroup directories of the containers with these ids, deepest first."""
    if not ids:
        return []
    found = []
    for directory, names, _ in os.walk(_CGROUPS):
        found += [
            Path(directory, name) for name in names if name.removesuffix(".scope").rpartition("-")[2] in ids
        ]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def list_container_processes(ids: set[str]) -> list[int]:
    """Return the ids of the processes in a cgroup of one of these containers."""
    if not ids:
        return []
    return [pid for pid in list_pids() if any(one in ids for one in _cgroup_words(pid))]


def cgroups_below(root: str) -> list[Path]:
    """Return the directories of the cgroup `root` (no leading slash) and of all below it, in every hierarchy,
    deepest first.
    """
    found = []
    for top in (_CGROUPS / root, *_CGROUPS.glob(f"*/{root}")):
        found += [Path(directory) for directory, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _cgroup_words(pid: int) -> set[str]:
    """Return the last elements of a process's cgroup paths, without ``PREFIX-`` and ``.scope``: container
    ids, if it is in a container.
    """
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    last = {line.rpartition("/")[2] for line in text.splitlines()}
    return {word.removesuffix(".scope").rpartition("-")[2] for word in last}


def remove_cgroup(path: Path, *, seconds: float = 2) -> None:
    """Remove a cgroup, with retries for `seconds`: it is busy for a moment after its last process was killed."""
    deadline = time.monotonic() + seconds
    while path.exists():
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
