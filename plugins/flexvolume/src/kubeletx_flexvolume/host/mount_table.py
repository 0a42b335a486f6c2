"""Reads mounts from ``/proc/self/mountinfo``. Source: proc(5).

Paths are compared as the kernel has them: of a path that is looked up, links in its directory are resolved, but the
path itself is not opened, since a dead file system may be mounted there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..mount_table import MountEntry, parse_table

MOUNTINFO: Final = Path("/proc/self/mountinfo")


class MountLine(msgspec.Struct, frozen=True):
    """One mount. `read_only`: the mount or its file system can only be read."""

    target: str
    fs_type: str
    source: str
    read_only: bool


def parse_mounts(data: bytes) -> tuple[MountLine, ...]:
    """Return the mounts in mount order. Lines that are malformed are left out."""
    entries = parse_table(os.fsdecode(data).split("\n"))
    return tuple(MountLine(one.target, one.fs_type, one.source, _is_read_only(one)) for one in entries)


def read_mounts() -> tuple[MountLine, ...]:
    """Return the present mounts of this process. Blocks."""
    return parse_mounts(MOUNTINFO.read_bytes())


def kernel_path(path: str) -> str:
    """Return an absolute path as the kernel shows it in the table. Blocks."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120


def mount_on(mounts: Sequence[MountLine], path: str) -> MountLine | None:
    """Return the topmost mount exactly on a path; None if nothing is mounted there. `path`: from `kernel_path`."""
    return next((one for one in reversed(mounts) if one.target == path), None)


def same_volume(mounts: Sequence[MountLine], target: str) -> tuple[str, ...]:
    """Return the mount points of other pods that have the same volume of the same driver, by the kubelet's layout.

    `target`: ``.../pods/<uid>/volumes/<vendor>~<driver>/<name>``.
    """
    pods, uid, *rest = _split(target)
    found = []
    for one in mounts:
        other_pods, other_uid, *other = _split(one.target)
        if other == rest and other_pods == pods and other_uid != uid and rest[0] == "volumes":
            found.append(one.target)
    return tuple(found)


def _split(path: str) -> tuple[str, str, str, str, str]:
    """Return the parts of a target: directory of all pods, UID, ``volumes``, driver, and name; empty if it has none."""
    parts = path.rsplit("/", 4)
    return (parts[0], parts[1], parts[2], parts[3], parts[4]) if len(parts) == 5 else ("", "", "", "", "")


def _is_read_only(entry: MountEntry) -> bool:
    return entry.is_read_only or "ro" in entry.file_system_options
