"""Errors about images. Each message names the image, what was found and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kubeletx.api import Internal, InvalidPod, KubeletxError, PermissionDenied, Unavailable

STORE_FULL = "ImageStoreFull"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Refused(Exception):
    """Raised for a disk that must not be used; the caller removes its file.

    `problem`: what was found, as the end of a sentence about the image. `fix`: what the user can do.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix

    def of(self, image: str) -> InvalidPod:
        """Convert to an InvalidPod that names the image."""
        return InvalidPod(
            field="image", problem=f"{image!r} {self.problem}", fix=self.fix, reason="ImageRefused"
        )


def is_full(error: OSError) -> bool:
    """Return True if the error means that the disk or a quota is full."""
    return error.errno in _FULL


def from_os_error(error: OSError, image: str, directory: Path) -> KubeletxError:
    """Translate an OSError about the store's own files. `directory`: the store's directory."""
    if is_full(error):
        return no_space(image, directory, None)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"image {image!r}: cannot write below {directory}: {error.strerror}")
    if error.errno in (errno.EIO, errno.ENOMEM, errno.ENFILE, errno.EMFILE):
        return Unavailable(f"image {image!r}: {error.strerror} at {error.filename or directory}")
    return Internal(f"image {image!r}: {error}")


def no_space(image: str, directory: Path, needed_bytes: int | None) -> Unavailable:
    """Return the error for a full disk. Its message says that nothing of the image is kept.

    `needed_bytes`: None: unknown.
    """
    needs = f" for {needed_bytes} more bytes" if needed_bytes is not None else ""
    return Unavailable(
        f"image {image!r}: no space left{needs} on the disk of {directory} ({free_bytes(directory)} bytes are "
        "free); nothing of it was kept; make room or remove unused images",
        reason=STORE_FULL,
    )


def free_bytes(directory: Path) -> int:
    """Return the number of free bytes in the file system; 0 if unknown."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
