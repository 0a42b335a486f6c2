"""Growth of image files."""

from __future__ import annotations

import os

from kubeletx.api import NotFound, Unavailable

from ..values import StorageVolume


def grow_file(volume: StorageVolume, path: str, size_bytes: int) -> int:
    """Make the file at least `size_bytes` large, and return its size in bytes. It never shrinks. Blocks."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size < size_bytes:
                os.ftruncate(descriptor, size_bytes)
                os.fsync(descriptor)
            return max(size, size_bytes)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise NotFound(f"volume {volume.name}: {path} does not exist") from None
    except OSError as error:
        raise Unavailable(f"volume {volume.name}: {path}: {error.strerror}") from error
