"""Mounts of a mount namespace, from ``/proc/PID/mountinfo``. Pure, but for `read_table`. Source: proc(5).

Only a line feed ends a line: paths may contain characters that Python treats as line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class MountEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One mount. `root`: path of the mounted directory within its file system.

    `device`: MAJOR:MINOR of the file system. `source`: device or remote source that was mounted. `options`: options of
    this mount, such as ro.
    """

    target: str
    root: str
    device: str
    fs_type: str
    source: str
    options: tuple[str, ...]
    file_system_options: tuple[str, ...] = ()

    @property
    def is_read_only(self) -> bool:
        """True if nothing can be written through this mount."""
        return "ro" in self.options

    @property
    def device_path(self) -> str:
        """Path of the device whose file is mounted, such as /dev/loop7; empty for other mounts."""
        return f"/dev{self.root}" if self.fs_type == "devtmpfs" and self.root != "/" else ""

    def has_same_files(self, other: MountEntry) -> bool:
        """Return True if both mounts show the same directory of the same file system."""
        return (self.device, self.root) == (other.device, other.root)


def read_table(path: Path, word: str = "") -> tuple[MountEntry, ...]:
    """Return the mounts of a mountinfo file, in mount order. `word`: read only lines that contain it, for speed."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return parse_table(line for line in text.split("\n") if word in line)


def parse_table(lines: Iterable[str]) -> tuple[MountEntry, ...]:
    """Return the mounts of the lines; malformed lines are left out."""
    found = (_parse(line) for line in lines)
    return tuple(one for one in found if one is not None)


def find_topmost(table: Iterable[MountEntry], target: str) -> MountEntry | None:
    """Return the topmost mount on `target`; None if nothing is mounted there."""
    found = None
    for one in table:
        if one.target == target:
            found = one
    return found


def _parse(line: str) -> MountEntry | None:
    words = line.split(" ")
    try:
        dash = words.index("-", 6)
        return MountEntry(
            device=words[2],
            root=_unescape(words[3]),
            target=_unescape(words[4]),
            options=tuple(words[5].split(",")),
            fs_type=words[dash + 1],
            source=_unescape(words[dash + 2]),
            file_system_options=tuple(words[dash + 3].split(",")),
        )
    except (ValueError, IndexError):
        return None


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
