"""Measures the disk usage of a directory in bytes and inodes, as ``du`` does. Blocks the calling thread.

Mounts below the directory are not counted, and a file with several hard links counts once. Pods may write meanwhile,
so entries that vanish or cannot be read are left out. No link is followed, and the depth of the tree has no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

import msgspec

from .files.held import walk

_BLOCK = 512


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Space in bytes and number of inodes that files occupy on a disk."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(bytes=self.bytes + other.bytes, inodes=self.inodes + other.inodes)


def add_up(uses: Iterable[DiskUse]) -> DiskUse:
    """Return the sum of several usages; zero if there are none."""
    return sum(uses, DiskUse())


def measure(path: Path) -> DiskUse:
    """Return the usage of a file, or of a directory with everything below it; zero if it does not exist."""
    try:
        status = os.lstat(path)
    except OSError:
        return DiskUse()
    use = _Use(status)
    if S_ISDIR(status.st_mode):
        with suppress(OSError):
            walk(path, use.add)
    return DiskUse(bytes=use.bytes, inodes=use.inodes)


class _Use:
    """Running total of one measurement; counts an inode with several names once."""

    def __init__(self, top: os.stat_result) -> None:
        self.bytes, self.inodes = top.st_blocks * _BLOCK, 1
        self._device = top.st_dev
        self._linked: set[int] = set()

    def add(self, directory: int, entry: os.DirEntry[str]) -> bool:
        """Add one entry to the total; return True if it is a directory whose content must be counted too.

        An entry is not added if it is on another file system, was added before, or cannot be read.
        """
        status = _stat(entry)
        if status is None or status.st_dev != self._device or status.st_ino in self._linked:
            return False
        is_directory = S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_directory:
            self._linked.add(status.st_ino)
        self.bytes, self.inodes = self.bytes + status.st_blocks * _BLOCK, self.inodes + 1
        return is_directory


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
