"""Reads mounts from ``/proc/self/mountinfo``. Source: proc(5).

Paths are compared as the kernel has them: of a path that is looked up, links in its directory are resolved, but the
path itself is not opened, since a dead file system may be mounted there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class MountLine(msgspec.Struct, frozen=True):
    """One mount. `read_only`: the mount or its file system can only be read."""

    target: str
    fs_type: str
    source: str
    read_only: bool


def parse_mounts(data: bytes) -> tuple[MountLine, ...]:
    """Return the mounts in mount order. Lines that are malformed are left out."""
    found = (_parse(line) for line in data.split(b"\n"))
    return tuple(one for one in found if one is not None)


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


def _parse(line: bytes) -> MountLine | None:
    words = line.split(b" ")
    try:
        dash = words.index(b"-", 6)
        options = {*words[5].split(b","), *words[dash + 3].split(b",")}
        return MountLine(_text(words[4]), _text(words[dash + 1]), _text(words[dash + 2]), b"ro" in options)
    except (ValueError, IndexError):
        return None


def _text(word: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes((int(match[1], 8),)), word))
