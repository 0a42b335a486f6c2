"""Cgroups of containers and of agents, in every hierarchy (v1, hybrid and v2), and their processes.

A container's cgroup is recognised by its last path element: the id itself (cgroupfs) or ``PREFIX-ID.scope`` (systemd).
So its processes are found regardless of their present parent.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from .process import list_pids

_CGROUPS = Path("/sys/fs/cgroup")


def remove_cgroups(root: str) -> None:
    """Remove a cgroup and all below it in every hierarchy; those with living processes stay."""
    for path in cgroups_below(root):
        remove_cgroup(path)


def remove_empty_default_cgroups() -> None:
    """Remove ``k8s.io``, where containerd puts pods that name no cgroup parent; it stays while it is used."""
    for path in (_CGROUPS / "k8s.io", *_CGROUPS.glob("*/k8s.io")):
        try:
            path.rmdir()
        except OSError:  # missing, or in use by containers
            pass


def list_container_cgroups(ids: set[str]) -> list[Path]:
    """Cgroup directories of the given containers, deepest first."""
    if not ids:
        return []
    found = []
    for directory, names, _ in os.walk(_CGROUPS):
        found += [
            Path(directory, name) for name in names if name.removesuffix(".scope").rpartition("-")[2] in ids
        ]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def list_container_processes(ids: set[str]) -> list[int]:
    """Process ids in a cgroup of one of these containers."""
    if not ids:
        return []
    return [pid for pid in list_pids() if any(one in ids for one in _cgroup_words(pid))]


def cgroups_below(root: str) -> list[Path]:
    """The cgroup `root` (no leading slash) of every hierarchy and all below it, deepest first."""
    found = []
    for top in (_CGROUPS / root, *_CGROUPS.glob(f"*/{root}")):
        found += [Path(directory) for directory, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _cgroup_words(pid: int) -> set[str]:
    """The container ids in a process's cgroup paths, as cgroupfs or systemd write them."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    last = {line.rpartition("/")[2] for line in text.splitlines()}
    return {word.removesuffix(".scope").rpartition("-")[2] for word in last}


def remove_cgroup(path: Path, *, seconds: float = 2) -> None:
    """Remove a cgroup, with retries: it is busy for a moment after its last process was killed."""
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
