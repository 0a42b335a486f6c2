"""How much of its disk a directory takes: blocks and inodes, as `du` counts them. Blocks its caller.

What is mounted below counts elsewhere; a file with several names counts once. What vanishes meanwhile, or may not
be read, is left out: pods write while they are measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

_BLOCK = 512


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """What something takes of a disk."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(bytes=self.bytes + other.bytes, inodes=self.inodes + other.inodes)


def add_up(uses: Iterable[DiskUse]) -> DiskUse:
    """The sum."""
    return sum(uses, DiskUse())


def measure(path: Path) -> DiskUse:
    """The use of a file, or of a directory with everything below it; nothing when it is not there."""
    try:
        found = os.lstat(path)
    except OSError:
        return DiskUse()
    size, inodes = found.st_blocks * _BLOCK, 1
    linked: set[int] = set()
    directories = [os.fspath(path)] if os.path.isdir(path) and not os.path.islink(path) else []
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    one = _stat(entry)
                    if one is None or one.st_dev != found.st_dev or one.st_ino in linked:
                        continue
                    if one.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        linked.add(one.st_ino)
                    size, inodes = size + one.st_blocks * _BLOCK, inodes + 1
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except OSError:
            continue
    return DiskUse(bytes=size, inodes=inodes)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
