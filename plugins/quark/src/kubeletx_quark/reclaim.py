"""Moves the memory of a frozen container out of RAM: file pages are dropped, other pages go to swap if there is any.

Swap may be a disk, or memory: zram and zswap keep the pages compressed. Without swap, only file pages and pages that
the kernel can drop are reclaimed.

    cgroup v1    write 0 to memory.force_empty
    cgroup v2    write the present usage to memory.reclaim (Linux 5.19)

One write seldom reclaims all: pages in use or in writeback are skipped. It is repeated while it reclaims memory.

On v2, ``memory.swap.max`` of the container may forbid swap, as kubelets set it. It is lifted while memory is reclaimed,
and then restored; pages that are in swap stay there. The old value is stored in a file meanwhile, so that it is also
restored if the agent is killed. Limits of cgroups above are not changed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kubeletx.api import Internal, KubeletxError, NotFound, PermissionDenied, Unsupported

ROUNDS = 8
"""Largest number of writes."""
LEAST_BYTES = 256 << 10
"""A write that reclaims less is the last one."""

_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_TRIGGER = {1: "memory.force_empty", 2: "memory.reclaim"}
_SWAP_LIMIT = "memory.swap.max"
_PARTLY = (errno.EAGAIN, errno.EBUSY, errno.EINTR)
"""Errors of a write that reclaimed less than was requested."""
_GONE = (errno.ENODEV, errno.ESRCH)


class Reclaimed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one reclaim, in bytes.

    `before_bytes`, `after_bytes`: the container's memory usage. `swapped_bytes`: additional usage of swap. None of
    them counts the compressed pages in zram, nor, on cgroup v1, those in zswap.
    """

    before_bytes: int
    after_bytes: int
    swapped_bytes: int = 0

    @property
    def freed_bytes(self) -> int:
        """Memory that the container gave back; never negative."""
        return max(self.before_bytes - self.after_bytes, 0)


def reclaim(directory: Path, version: int, note: Path, stop: threading.Event | None = None) -> Reclaimed:
    """Reclaim as much memory of the cgroup as possible. Blocks for up to seconds.

    Once `stop` is set, no further write to reclaim memory is begun; the limit of swap is restored as always.

    `directory`: of the cgroup in the hierarchy of the memory controller. `version`: of that hierarchy. `note`: file
    that has the limit of swap while it is lifted; its directory is created. Raises Unsupported if the kernel has no
    such file, NotFound if the cgroup is gone, and PermissionDenied without the rights of root.
    """
    usage = directory / _USAGE[version]
    if not directory.is_dir():
        raise NotFound(f"cgroup {directory} is gone")
    try:
        before, swap = _number(usage), _swap(directory, version)
        with _lifted_swap_limit(directory, note):
            now = before
            for _ in range(ROUNDS):
                if stop is not None and stop.is_set():
                    break
                _write(directory / _TRIGGER[version], "0" if version == 1 else str(now))
                last, now = now, _number(usage)
                if last - now < LEAST_BYTES:
                    break
        return Reclaimed(
            before_bytes=before, after_bytes=now, swapped_bytes=max(_swap(directory, version) - swap, 0)
        )
    except OSError as error:
        raise _translated(error, directory) from error


def restore_swap_limit(directory: Path, note: Path) -> None:
    """Restore the limit of swap that a killed agent had lifted, and remove the note.

    `directory`: of the container's cgroup. `note`: file that was passed to `reclaim`; without it nothing is done.
    """
    if not note.is_file():
        return
    try:
        if text := note.read_text().strip():
            _write(directory / _SWAP_LIMIT, text)
    except OSError:
        pass  # the container is gone
    note.unlink(missing_ok=True)


@contextmanager
def _lifted_swap_limit(directory: Path, note: Path) -> Iterator[None]:
    """Lift the limit of swap, if it has one, while the block runs. cgroup v1 has no such file."""
    restore_swap_limit(directory, note)  # lifted by an agent process that was killed
    limit = directory / _SWAP_LIMIT
    old = limit.read_text().strip() if limit.exists() else "max"
    if old == "max":
        yield
        return
    note.parent.mkdir(exist_ok=True)
    note.write_text(old)
    try:
        _write(limit, "max")
        yield
    finally:
        restore_swap_limit(directory, note)


def _write(file: Path, text: str) -> None:
    try:
        # O_CREAT is left out: in a directory that is not a cgroup, a file would be made.
        with os.fdopen(os.open(file, os.O_WRONLY), "w") as opened:
            opened.write(text)
    except OSError as error:
        if error.errno not in _PARTLY:
            error.filename = error.filename or str(file)
            raise


def _translated(error: OSError, directory: Path) -> KubeletxError:
    file = error.filename or str(directory)
    if error.errno in _GONE or not directory.is_dir():
        return NotFound(f"cgroup {directory} is gone")
    if isinstance(error, FileNotFoundError):
        return Unsupported(f"memory cannot be reclaimed: {file} does not exist on this node")
    if isinstance(error, PermissionError):
        return PermissionDenied(
            f"memory cannot be reclaimed: no access to {file}: {error.strerror}; the agent must be root"
        )
    return Internal(f"memory cannot be reclaimed from {directory}: {error.strerror}")


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
