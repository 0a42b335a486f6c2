"""Mount tables: ``/proc/self/mountinfo``, and the table of another mount namespace. Source: proc(5).

Paths in a table come from containers and manifests. They need not be UTF-8 and may contain characters that Python treats
as line ends. Only a line feed ends a line; the kernel writes a line feed in a path as ``\\012``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class MountPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mount. `target`: path of the mount point. `root`: path of the mounted directory inside its file system.

    `device`: MAJOR:MINOR of the file system. `source`: the device or another name of the file system. `options`: of
    this mount, such as ro. `super_options`: of the file system. `is_shared`: mounts below it propagate to other mount
    namespaces.
    """

    target: str
    fs_type: str
    source: str = ""
    root: str = "/"
    device: str = ""
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()
    is_shared: bool = False
    id: int = 0

    @property
    def is_read_only(self) -> bool:
        """True if nothing can be written through this mount; its file system may be writable elsewhere."""
        return "ro" in self.options

    @property
    def device_path(self) -> str:
        """Path of the device whose file is mounted, such as /dev/loop7; empty for other mounts."""
        return f"/dev{self.root}" if self.fs_type == "devtmpfs" and self.root != "/" else ""

    def has_same_files(self, other: MountPoint) -> bool:
        """Return True if both mounts show the same directory of the same file system."""
        return (self.device, self.root) == (other.device, other.root)


def parse_mounts(text: str) -> tuple[MountPoint, ...]:
    """Return every mount in the text, in mount order. Malformed lines are skipped."""
    mounts = (_parse_line(line) for line in text.split("\n"))
    return tuple(mount for mount in mounts if mount is not None)


def read_mounts(
    below: Path | None = None, *, word: str = "", table: Path = MOUNTINFO
) -> tuple[MountPoint, ...]:
    """Return the present mounts, in mount order. Raises OSError.

    `below`: if given, only mounts on this path and below it are needed; most others are then left out. This saves time:
    a node with a thousand pods has many thousands of mounts, and each pod needs only a few of them. `word`: only lines
    that contain it are read, for the same reason. `table`: ``/proc/PID/mountinfo`` for another namespace.
    """
    text = table.read_bytes().decode("utf-8", "surrogateescape")  # as text, a \r would become a line feed
    word = word if below is None else f" {_escape(str(below))}"
    return parse_mounts("\n".join(line for line in text.split("\n") if word in line) if word else text)


def mounts_below(mounts: Iterable[MountPoint], directory: Path) -> tuple[MountPoint, ...]:
    """Return the mounts on `directory` and below it, in mount order; a later one may cover an earlier one."""
    whole, prefix = str(directory), f"{directory}/"
    return tuple(mount for mount in mounts if mount.target == whole or mount.target.startswith(prefix))


def find_mount(mounts: Iterable[MountPoint], target: Path | str) -> MountPoint | None:
    """Return the topmost mount exactly on `target`; None if nothing is mounted there."""
    path, topmost = str(target), None
    for mount in mounts:
        if mount.target == path:
            topmost = mount
    return topmost


def kernel_path(path: str) -> str:
    """Return an absolute path as the kernel shows it in the table: links in its directory are resolved. Blocks.

    The path itself is not opened, since the file system that is mounted on it may not answer.
    """
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120


def _parse_line(line: str) -> MountPoint | None:
    """Return the mount of one line; None if the line is malformed.

    Some file systems write options without escaping them.
    """
    words = line.split(" ")
    try:
        dash = words.index("-", 6)
        return MountPoint(
            id=int(words[0]),
            device=words[2],
            root=_unescape(words[3]),
            target=_unescape(words[4]),
            options=tuple(words[5].split(",")),
            is_shared=any(word.startswith("shared:") for word in words[6:dash]),
            fs_type=words[dash + 1],
            source=_unescape(words[dash + 2]),
            super_options=tuple(words[dash + 3].split(",")),
        )
    except (ValueError, IndexError):
        return None


def _escape(text: str) -> str:
    return re.sub(r"[ \t\n\\]", lambda match: f"\\{ord(match[0]):03o}", text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
