"""Small files that are replaced as a whole and survive a crash, and directories that only their owner enters.

`replace_file` is the rule: after a crash of the process or a power loss the file has the old or the new content, and the
new one once the function has returned. `replace_unflushed` lacks the second half. Concurrent writers of one file must
take turns. All functions block and raise OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".new"
"""Suffix of the hidden file beside PATH, ``.NAME.new``, that an interrupted write leaves; the next write replaces it."""


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Create or replace the file with this content and exactly this mode; it is on disk when the function returns.

    Readers see the old or the new content. If an error is raised, the old content is still there. A missing parent
    directory is made, accessible to this user only.
    """
    _replace(path, data, mode, is_flushed=True)
    # Without it, the directory may have the old entry again after a power loss, although the new file is on disk.
    sync_directory(path.parent)


def replace_unflushed(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file like `replace_file`, but without a flush: after a power loss it may be old, empty or missing.

    For files that are made again, or whose loss costs nothing.
    """
    _replace(path, data, mode, is_flushed=False)


def _replace(path: Path, data: bytes, mode: int, *, is_flushed: bool) -> None:
    new = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        descriptor = _create(new, mode)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _create(new, mode)
    try:
        try:
            os.fchmod(descriptor, mode)  # the umask is not applied
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            if is_flushed:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _create(path: Path, mode: int) -> int:
    """Open a new file. O_EXCL: an earlier one may have another mode, or be a link to another file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, mode)


def remove_file(path: Path) -> bool:
    """Remove the file so that it stays removed after a crash, and return True; return False if it did not exist."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Fsync a directory, so that renames, links and removals in it survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_directory(path: Path) -> Path:
    """Make the directory, with mode 0700 from the first moment, and return it.

    An existing one gets mode 0700. Raises NotADirectoryError if the path is a link or a file, and PermissionError if it
    belongs to another user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return path


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file; a symbolic link is refused.

    Raises OSError with ELOOP for a link, EINVAL for anything else that is not a regular file, EFBIG above `max_bytes`.
    """
    # O_NONBLOCK: a pipe without a writer would block the open call.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", str(path))
    return data


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Return inode and time of modification, which differ whenever a file is written; None without a file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
