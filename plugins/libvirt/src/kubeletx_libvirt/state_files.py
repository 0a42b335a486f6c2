"""`state_file_errors`: translates the OSErrors of files below the plugin's state directory to those of `kubeletx.api`."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from kubeletx.api import Internal, KubeletxError, PermissionDenied, Unavailable
from kubeletx_libvirt.images.problems import free_bytes, is_full

STATE_FULL = "StateDirectoryFull"


@contextlib.contextmanager
def state_file_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Context in which an OSError becomes a KubeletxError that names the file and what to do.

    `path`: the file or directory that is used, unless the error names another one. `verb`: write, read or remove.
    """
    try:
        yield
    except OSError as error:
        raise _translated(error, path, verb) from error


def _translated(error: OSError, path: Path, verb: str) -> KubeletxError:
    words = error.strerror or str(error)
    where = error.filename or path
    if is_full(error):
        room = next(one for one in (path, *path.parents) if one.exists())
        return Unavailable(
            f"cannot {verb} {where}: {words} ({free_bytes(room)} bytes are free); make room on this disk",
            reason=STATE_FULL,
        )
    if error.errno == errno.EROFS:
        return PermissionDenied(f"cannot {verb} {where}: {words}; mount the file system of {path} writable")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(f"cannot {verb} {where}: {words}; give the agent access to {path}")
    if error.errno in (errno.EIO, errno.ENOMEM, errno.ENFILE, errno.EMFILE):
        return Unavailable(
            f"cannot {verb} {where}: {words}; check the disk and the limits of the agent's process"
        )
    return Internal(f"cannot {verb} {where}: {words}")
