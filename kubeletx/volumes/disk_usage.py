"""Disk usage of a directory: blocks and inodes, as `du` counts them. Blocks its caller.

Mounts below it are not counted; a file with several names counts once. Entries that vanish meanwhile or may not
be read are left out: pods write while they are measured. No link is followed; the depth has no limit.
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
    """Space and inodes used on a disk."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(bytes=self.bytes + other.bytes, inodes=self.inodes + other.inodes)


def add_up(uses: Iterable[DiskUse]) -> DiskUse:
    """Add up the usage."""
    return sum(uses, DiskUse())


def measure(path: Path) -> DiskUse:
    """Usage of a file, or of a directory with everything below it; zero if it does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return DiskUse()
    use = _Use(found)
    if S_ISDIR(found.st_mode):
        with suppress(OSError):
            walk(path, use.add)
    return DiskUse(bytes=use.bytes, inodes=use.inodes)


class _Use:
    """The sum so far."""

    def __init__(self, top: os.stat_result) -> None:
        self.bytes, self.inodes = top.st_blocks * _BLOCK, 1
        self._device = top.st_dev
        self._linked: set[int] = set()

    def add(self, directory: int, entry: os.DirEntry[str]) -> bool:
        """Count one entry; True to descend into it."""
        one = _stat(entry)
        if one is None or one.st_dev != self._device or one.st_ino in self._linked:
            return False
        is_directory = S_ISDIR(one.st_mode)
        if one.st_nlink > 1 and not is_directory:
            self._linked.add(one.st_ino)
        self.bytes, self.inodes = self.bytes + one.st_blocks * _BLOCK, self.inodes + 1
        return is_directory


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
