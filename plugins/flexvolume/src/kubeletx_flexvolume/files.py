"""Small files of the agent: names for volumes, and atomic replacement. All functions block."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

HALF_WRITTEN: Final = ".tmp"
_LONGEST_STEM: Final = 200


def file_stem(volume: str) -> str:
    """Return a file name for the volume, without an extension.

    It is the volume's name, which is a DNS subdomain. A name that leaves no room for an extension is shortened, and its
    hash added.
    """
    if len(volume) <= _LONGEST_STEM:
        return volume
    return f"{volume[:120]}_{hashlib.sha256(volume.encode()).hexdigest()}"


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file, or make it, so that after a crash it has the old or the new content. Mode 0600.

    A write that fails leaves no other file; a crash may leave one that ends in `HALF_WRITTEN`.
    """
    new = path.with_name(f".{path.name}{HALF_WRITTEN}")
    try:
        _write(new, data)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    new.replace(path)
    sync_directory(path.parent)  # without it the former content may be back after a power loss


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Write the names of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_directory(path: Path) -> Path:
    """Make the directory, with mode 0700 from the first moment, and return it.

    An existing one gets mode 0700. Raises OSError, with ENOTDIR if the path is a link or a file, and PermissionError if
    it belongs to another user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid not in (0, os.geteuid()):
            raise PermissionError(1, "belongs to another user", str(path))
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return path
