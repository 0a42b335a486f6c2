"""Copies a file of this node into the image store.

A pod must not read files that its author may not read. So the file must be below a configured directory after
all links are resolved, and it must be a regular file. The check is repeated on the opened file, so that the
file cannot be replaced between check and use.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletx.api import InvalidPod, NotFound, PermissionDenied

from .importing import Limits, Stopped, private_opener, too_large
from .problems import free_bytes, no_space
from .unpack import CHUNK_BYTES


def check_place(path: str, directories: Sequence[str]) -> None:
    """Raise InvalidPod unless the path, with all links resolved, is below one of `directories`."""
    real = os.path.realpath(path)
    if not any(_is_below(real, os.path.realpath(directory)) for directory in directories):
        below = ", ".join(directories) or "none for this pod"
        raise InvalidPod(
            field="image",
            problem=f"{path!r} is not below a directory that local images may come from ({below})",
            fix="put it there, or add its directory to kubeletx.plugins.libvirt.imageDirectories",
            reason="ImageRefused",
        )


def open_image(path: str, directories: Sequence[str]) -> int:
    """Open the file and return its descriptor, which the caller must close.

    Raises InvalidPod unless it is a regular file below one of `directories`, NotFound, and PermissionDenied.
    """
    check_place(path, directories)
    try:
        descriptor = os.open(
            os.path.realpath(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"image {path!r}: there is no such file on this node") from error
    except PermissionError as error:
        raise PermissionDenied(f"image {path!r}: the agent may not read it") from error
    except OSError as error:
        raise _no_file(path) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_file(path)
        opened = os.readlink(f"/proc/self/fd/{descriptor}")
        check_place(opened, directories)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def stamp_of(descriptor: int) -> str:
    """Return a text that changes when the file changes: device, inode, size and modification time."""
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def copy(
    descriptor: int,
    target: Path,
    *,
    image: str,
    algorithms: Sequence[str],
    limits: Limits,
    stop: threading.Event,
    progress: Callable[[int], object],
) -> dict[str, str]:
    """Copy the opened file to `target`, with holes in place of zeros.

    Returns the hexadecimal digest of the content for each of `algorithms`. `image`: the reference, for
    messages. `progress`: called with the number of copied bytes. Raises Refused for a file above the limits, Unavailable if there is no space, Stopped if `stop`
    is set, and OSError.
    """
    size = os.fstat(descriptor).st_size
    if size > limits.image_bytes:
        raise too_large(size, limits.image_bytes)
    if os.fstat(descriptor).st_blocks * 512 > free_bytes(target.parent):
        raise no_space(image, target.parent, size)
    hashes = {name: hashlib.new(name) for name in algorithms}
    done = 0
    with open(target, "wb", opener=private_opener) as file:
        while chunk := os.pread(descriptor, CHUNK_BYTES, done):
            if stop.is_set():
                raise Stopped
            for digest in hashes.values():
                digest.update(chunk)
            if chunk.count(0) == len(chunk):
                file.seek(len(chunk), os.SEEK_CUR)
            else:
                file.write(chunk)
            done += len(chunk)
            if done > limits.image_bytes:
                raise too_large(done, limits.image_bytes)
            progress(done)
        file.truncate(done)
    return {name: digest.hexdigest() for name, digest in hashes.items()}


def _is_below(path: str, directory: str) -> bool:
    return directory == "/" or path.startswith(f"{directory}/")


def _no_file(path: str) -> InvalidPod:
    return InvalidPod(
        field="image",
        problem=f"{path!r} is not a regular file",
        fix="name a qcow2 or raw file",
        reason="ImageRefused",
    )
