"""Moves the memory of a frozen container out of RAM: file pages are dropped, other pages go to swap if there is any.

Swap may be a disk, or memory again: zram and zswap keep the pages compressed. Without swap, only file pages and pages
that the kernel can drop are given back.

    cgroup v1    write 0 to memory.force_empty
    cgroup v2    write the present usage to memory.reclaim (Linux 5.19)
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from kubeletx.api import Internal, NotFound, Unsupported


class Reclaimed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one reclaim, in bytes.

    `before_bytes`, `after_bytes`: the container's memory usage. `swapped_bytes`: additional usage of swap.
    """

    before_bytes: int
    after_bytes: int
    swapped_bytes: int = 0

    @property
    def freed_bytes(self) -> int:
        """Memory that the container gave back; never negative."""
        return max(self.before_bytes - self.after_bytes, 0)


def reclaim(directory: Path, version: int) -> Reclaimed:
    """Reclaim as much memory of the cgroup as possible. Blocks, for seconds with much memory.

    `directory`: of the cgroup in the hierarchy of the memory controller. `version`: of that hierarchy. Raises
    Unsupported if the kernel has no such file, and NotFound if the cgroup is gone.
    """
    usage, trigger = (
        ("memory.usage_in_bytes", "memory.force_empty")
        if version == 1
        else ("memory.current", "memory.reclaim")
    )
    if not directory.is_dir():
        raise NotFound(f"cgroup {directory} is gone")
    try:
        before, swap = _number(directory / usage), _swap(directory, version)
        _write(directory / trigger, "0" if version == 1 else str(before))
        after = _number(directory / usage)
        return Reclaimed(
            before_bytes=before, after_bytes=after, swapped_bytes=max(_swap(directory, version) - swap, 0)
        )
    except FileNotFoundError as error:
        raise Unsupported(
            f"memory cannot be reclaimed: {error.filename} does not exist on this node"
        ) from error
    except OSError as error:
        raise Internal(f"memory cannot be reclaimed from {directory}: {error.strerror}") from error


def _write(file: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(file, os.O_WRONLY), "w") as opened:
            opened.write(text)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EBUSY, errno.EINTR):
            raise  # else: less was reclaimed than requested


def _number(file: Path) -> int:
    return int(file.read_text())


def _swap(directory: Path, version: int) -> int:
    """Return the cgroup's usage of swap; 0 if the kernel does not count it."""
    if version == 2:
        file = directory / "memory.swap.current"
        return _number(file) if file.exists() else 0
    for line in (directory / "memory.stat").read_text().strip().split("\n"):
        name, _, value = line.partition(" ")
        if name in ("swap", "total_swap"):
            return int(value)
    return 0
