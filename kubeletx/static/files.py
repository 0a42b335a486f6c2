"""Access to manifest files: lists them, detects changes, and reads them without waiting for pipes or devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.load import MAX_BYTES, too_large


class FileSignature(NamedTuple):
    """Inode, size and times of a file; if two signatures are equal, its content has not changed."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Content(NamedTuple):
    """Content of a file, with its signature when it was read."""

    data: bytes
    signature: FileSignature


def list_names(directory: str) -> list[str]:
    """Names of a directory's entries in sorted order, without those that start with a dot."""
    return sorted(name for name in os.listdir(directory) if not is_hidden(name))


def is_hidden(name: str) -> bool:
    """Return True for a name to skip, which begins with a dot: a temporary file of an editor or an atomic
    writer.
    """
    return name.startswith(".")


def is_complete_at_once(path: str) -> bool:
    """Return True if a new entry is complete when it appears: a symbolic or hard link, not a file that is
    still being written.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1)


def is_gone(path: str) -> bool:
    """Return True if the name does not exist, not even as a dangling link.

    After a disk error it is False: the file may exist.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def signature_of(status: os.stat_result) -> FileSignature:
    """The signature of a file with this status."""
    return FileSignature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_manifest(path: str) -> Content:
    """Read a regular file of at most 10 MB.

    Raises InvalidPod if it is another kind of file or larger, and OSError. Pipes and devices are opened
    without waiting and never read.
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
