"""Reads the mounts of this process from ``/proc/self/mountinfo``. Source: proc(5).

Paths in this file come from containers and manifests. They need not be UTF-8 and may contain characters that Python
treats as line ends. Only a line feed ends a line; the kernel writes a line feed in a path as ``\\012``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class MountPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mount. `target`: path of the mount point. `root`: path of the mounted directory inside its file system.

    `source`: the device or another name of the file system. `options`: options of the mount. `super_options`: options
    of the file system. `shared`: True if mounts below it propagate to other mount namespaces.
    """

    id: int
    target: str
    root: str
    fstype: str
    source: str
    options: str
    super_options: str
    shared: bool


def parse_mountinfo(text: str) -> tuple[MountPoint, ...]:
    """Return every mount in the text, in mount order. Malformed lines are skipped."""
    found = (_parse_line(line) for line in text.split("\n"))
    return tuple(one for one in found if one is not None)


def read_mountinfo(below: Path | None = None) -> tuple[MountPoint, ...]:
    """Return the present mounts of this process, in mount order.

    `below`: if given, only mounts on this path and below it are needed; most others are then left out. This saves time:
    a node with a thousand pods has many thousands of mounts, and each pod needs only a few of them.
    """
    text = MOUNTINFO.read_bytes().decode("utf-8", "surrogateescape")  # as text, a \r would become a line feed
    if below is not None:
        wanted = f" {_escape(str(below))}"
        text = "\n".join(line for line in text.split("\n") if wanted in line)
    return parse_mountinfo(text)


def mounts_below(mounts: Iterable[MountPoint], directory: Path) -> tuple[MountPoint, ...]:
    """Return the mounts on `directory` and below it, in mount order; a later one may cover an earlier one."""
    whole, prefix = str(directory), f"{directory}/"
    return tuple(one for one in mounts if one.target == whole or one.target.startswith(prefix))


def find_mount(mounts: Iterable[MountPoint], target: Path) -> MountPoint | None:
    """Return the topmost mount exactly on `target`; None if nothing is mounted there."""
    found = None
    for one in mounts:
        if one.target == str(target):
            found = one
    return found


def _parse_line(line: str) -> MountPoint | None:
    """Return the mount of one line; None if the line is malformed.

    Some file systems write options without escaping them.
    """
    words = line.split(" ")
    try:
        dash = words.index("-", 6)
        return MountPoint(
            id=int(words[0]),
            root=_unescape(words[3]),
            target=_unescape(words[4]),
            options=words[5],
            shared=any(word.startswith("shared:") for word in words[6:dash]),
            fstype=words[dash + 1],
            source=_unescape(words[dash + 2]),
            super_options=words[dash + 3],
        )
    except (ValueError, IndexError):
        return None


def _escape(text: str) -> str:
    return re.sub(r"[ \t\n\\]", lambda match: f"\\{ord(match[0]):03o}", text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
