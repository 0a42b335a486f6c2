"""Pools: directories of this node with the image files or directories of volumes (option ``--pool``).

An image is one file or directory directly in its pool. It is never a link, so that a volume cannot reach other files of
the node. A new image appears in the pool complete, by a link(2) that replaces nothing. All functions block.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import NotFound, Unavailable

from ..values import StorageVolume
from .backend import bad_option

IMAGE_NAME: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z._]{0,239}")
MAX_SIZE: Final = 1 << 60
_NO_TMPFILE: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)
"""Results of O_TMPFILE on file systems without it, such as NFS. Source: open(2)."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool. `is_shared`: other machines reach its directory, too."""

    name: str
    directory: str
    is_shared: bool = False


class Pools:
    """The configured pools, by name. `boot_id`: of the running kernel."""

    def __init__(self, pools: Mapping[str, Pool], boot_id: str = "") -> None:
        self._pools = pools
        self._boot_id = boot_id

    def check(self, volume: StorageVolume) -> None:
        """Raise InvalidConfig if the volume's pool or image cannot exist."""
        if volume.pool not in self._pools:
            known = ", ".join(sorted(self._pools)) or "none"
            raise bad_option(
                volume,
                "pool",
                f"{volume.pool!r} is not configured on this node (known: {known})",
                "add --pool",
            )
        if not IMAGE_NAME.fullmatch(volume.image):
            raise bad_option(
                volume,
                "image",
                f"{volume.image!r} is not a file name",
                "use letters, digits, '-', '_' and '.'",
            )
        if volume.size_bytes > MAX_SIZE:
            raise bad_option(
                volume, "size", f"{volume.size_bytes} bytes are too many", f"use at most {MAX_SIZE}"
            )

    def get(self, volume: StorageVolume) -> Pool:
        self.check(volume)
        return self._pools[volume.pool]

    def image_path(self, volume: StorageVolume) -> str:
        """Return the real path of the volume's image, which need not exist. Raises InvalidConfig."""
        return f"{os.path.realpath(self.get(volume).directory)}/{volume.image}"

    def identities(self, volume: StorageVolume) -> tuple[str, ...]:
        """Return the identities of the volume's image, see `Backend.images`: its inode, and its name in a shared pool.

        Inode and device numbers of a file differ from machine to machine.
        """
        path = Path(self.image_path(volume))
        found = [f"pool {volume.pool}/{volume.image}"] if self.get(volume).is_shared else []
        try:
            status = path.lstat()
        except FileNotFoundError:
            return tuple(found)
        except OSError as error:
            raise _unusable(volume, path, error) from error
        return (*found, f"inode {self._boot_id} {status.st_dev} {status.st_ino}")

    def ensure_file(self, volume: StorageVolume) -> str:
        """Return the path of the volume's image file; make the file if it is missing and the volume has a size.

        Raises NotFound if it is missing, InvalidConfig if it is not a file or smaller than the volume, and Unavailable if
        the pool cannot be used.
        """
        path = Path(self.image_path(volume))
        try:
            with contextlib.suppress(FileNotFoundError):
                return self._checked(volume, path)
            if not volume.size_bytes:
                raise _missing(volume, path)
            _make_sparse(path, volume.size_bytes)
            return self._checked(volume, path)
        except OSError as error:
            raise _unusable(volume, path, error) from error

    def ensure_directory(self, volume: StorageVolume) -> str:
        """Return the path of the volume's directory; make it if it is missing and the volume has a size."""
        path = Path(self.image_path(volume))
        try:
            if volume.size_bytes:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o750)
            mode = path.lstat().st_mode
        except FileNotFoundError:
            raise _missing(volume, path) from None
        except OSError as error:
            raise _unusable(volume, path, error) from error
        if not stat.S_ISDIR(mode):
            raise bad_option(volume, "image", f"{path} is not a directory", "give the name of a directory")
        return str(path)

    def image_at(self, path: str) -> tuple[str, str] | None:
        """Return pool and image of a path; None if it is in no pool."""
        directory, _, image = path.rpartition("/")
        for pool in self._pools.values():
            if os.path.realpath(pool.directory) == directory and IMAGE_NAME.fullmatch(image):
                return pool.name, image
        return None

    def _checked(self, volume: StorageVolume, path: Path) -> str:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise bad_option(
                volume, "image", f"{path} is not a regular file", "give the name of an image file"
            )
        if found.st_nlink > 1 and self.get(volume).is_shared:
            problem = f"{path} has {found.st_nlink} hard links, and another node may have it by another name"
            raise bad_option(volume, "image", problem, "remove its other names")
        if found.st_size < max(1, volume.size_bytes):
            problem = f"{path} has {found.st_size} bytes, and {volume.size_bytes} are asked for"
            raise bad_option(volume, "size", problem, "expand the image, or correct the size")
        return str(path)


def _make_sparse(path: Path, size_bytes: int) -> None:
    """Make a sparse file; one that another agent makes at the same moment is left as it is.

    The file has no name before it is complete, so that a crash leaves nothing in the pool.
    """
    with contextlib.ExitStack() as stack:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, directory)
        try:
            descriptor = os.open(path.parent, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
            source = f"/proc/self/fd/{descriptor}"
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            source = f".{path.name}.{secrets.token_hex(8)}.tmp"  # another agent may have the same PID
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(source, flags, 0o600, dir_fd=directory)
            stack.callback(os.unlink, source, dir_fd=directory)
        stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(source, path.name, src_dir_fd=directory, dst_dir_fd=directory)


def _missing(volume: StorageVolume, path: Path) -> NotFound:
    return NotFound(
        f"volume {volume.name}: {path} does not exist; make it, or give option size, which makes it"
    )


def _unusable(volume: StorageVolume, path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"volume {volume.name}: {path}: {error.strerror}; check pool {volume.pool}")
