"""Functions that list manifest files, detect changes, and read files without blocking on pipes or devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.load import MAX_BYTES, too_large


class FileSignature(NamedTuple):
    """Inode, size and times of a file; equal signatures mean that the content has not changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Content(NamedTuple):
    """Content of a file, and the signature that the file had when it was opened."""

    data: bytes
    signature: FileSignature


def list_names(directory: str) -> list[str]:
    """Return the sorted names of a directory's entries, except names that begin with a dot."""
    return sorted(name for name in os.listdir(directory) if not is_hidden(name))


def is_hidden(name: str) -> bool:
    """Return True if the name begins with a dot; such files, often temporary files of editors, are not manifests."""
    return name.startswith(".")


def is_complete_at_once(path: str) -> bool:
    """Return True if a new directory entry is complete when it appears, since it is a symbolic or hard link.

    Any other file may still be in the process of being written.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1)


def is_gone(path: str) -> bool:
    """Return True if there is no directory entry at `path`, not even a dangling link.

    Returns False if a disk error prevents the check, since the file may exist.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def signature_of(status: os.stat_result) -> FileSignature:
    """Return the signature of the file whose `os.stat` result is `status`."""
    return FileSignature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_manifest(path: str) -> Content:
    """Read a regular file of at most 10 MB.

    Raises InvalidPod if the file is larger or is not a regular file, and OSError if it cannot be read. Pipes and
    devices are opened without blocking and never read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidPod(obj=path, field="", problem="is not a regular file", fix="remove it")
        if status.st_size > MAX_BYTES:
            raise too_large(path, status.st_size)
        return Content(b"".join(_chunks(descriptor, MAX_BYTES + 1)), signature_of(status))
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, limit: int) -> Iterator[bytes]:
    while limit > 0 and (chunk := os.read(descriptor, min(limit, 1024 * 1024))):
        limit -= len(chunk)
        yield chunk
