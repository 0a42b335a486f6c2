"""Finds and removes the cgroups of containers and agents, and finds the processes in them.

All hierarchies are searched (v1, hybrid and v2). A container's cgroup is recognised by the last element of
its path: the container's id (cgroupfs) or ``PREFIX-ID.scope`` (systemd). So the container's processes are
found whatever their parent process is.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from .process import list_pids

_CGROUPS = Path("/sys/fs/cgroup")


def remove_cgroups(root: str) -> None:
    """Remove a cgroup and all cgroups below it in every hierarchy; those that still contain processes are kept.

    `root`: path of the cgroup without a leading slash.
    """
    for path in cgroups_below(root):
        remove_cgroup(path)


def remove_empty_default_cgroups() -> None:
    """Remove the cgroup ``k8s.io`` unless it is in use.

    containerd puts pods there if their cgroup parent is not set.
    """
    for path in (_CGROUPS / "k8s.io", *_CGROUPS.glob("*/k8s.io")):
        try:
            path.rmdir()
        except OSError:  # missing, or in use by containers
            pass


def list_container_cgroups(ids: set[str], mount: Path = _CGROUPS) -> list[Path]:
    """Return the cgroup directories of these containers, deepest first. `ids`: container ids."""
    if not ids:
        return []
    directories = []
    for directory, names, _ in os.walk(mount):
        directories += [
            Path(directory, name) for name in names if name.removesuffix(".scope").rpartition("-")[2] in ids
        ]
    return sorted(directories, key=lambda path: len(path.parts), reverse=True)


def list_container_processes(ids: set[str]) -> list[int]:
    """Return the ids of the processes that run in these containers. `ids`: container ids."""
    if not ids:
        return []
    return [pid for pid in list_pids() if any(word in ids for word in _cgroup_words(pid))]


def thaw_containers(ids: set[str], mount: Path = _CGROUPS) -> None:
    """Thaw these containers if they are frozen: with cgroup v1, SIGKILL ends a process only after its thaw.

    `ids`: container ids. `mount`: directory of all hierarchies.
    """
    for directory in list_container_cgroups(ids, mount):
        _thaw(directory)


def thaw_cgroups(root: str, mount: Path = _CGROUPS) -> None:
    """Thaw a cgroup and all cgroups below it. `root`: path of the cgroup without a leading slash."""
    for directory in cgroups_below(root, mount):
        _thaw(directory)


def _thaw(directory: Path) -> None:
    for name, text in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        # Fails if it is not the hierarchy of the freezer, or was just removed.
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.open(directory / name, os.O_WRONLY), "w") as opened,
        ):
            opened.write(text)


def cgroups_below(root: str, mount: Path = _CGROUPS) -> list[Path]:
    """Return the directories of a cgroup and of all cgroups below it, in every hierarchy, deepest first.

    `root`: path of the cgroup without a leading slash.
    """
    found = []
    for top in (mount / root, *mount.glob(f"*/{root}")):
        found += [Path(directory) for directory, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _cgroup_words(pid: int) -> set[str]:
    """Return the last elements of a process's cgroup paths, without ``PREFIX-`` and ``.scope``.

    For a process in a container, the container's id is among them.
    """
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    last = {line.rpartition("/")[2] for line in text.splitlines()}
    return {word.removesuffix(".scope").rpartition("-")[2] for word in last}


def remove_cgroup(path: Path, *, seconds: float = 2) -> None:
    """Remove a cgroup. A cgroup is busy for a moment after its last process was killed, so retry for `seconds`."""
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
