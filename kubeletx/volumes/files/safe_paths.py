"""File operations in directories that containers can write to; links cannot make them reach files outside.

The kernel resolves names with openat2(2) and RESOLVE_BENEATH: a link may lead anywhere inside the volume but not out of
it. On a kernel without openat2 (before 5.6) no link is followed. Directories are emptied through file descriptors; a
mount point in them raises an error and is never entered.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from kubeletx.linux.libc import call

_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_AT_ONCE: Final = 10_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@contextmanager
def open_beneath(base: Path, relative: str, flags: int = os.O_PATH) -> Iterator[int]:
    """Open the path `relative` inside the directory `base` for the duration of the block; yield the descriptor.

    The path of `base` itself may contain links. Raises OSError: EXDEV if `relative` leads out of `base`, ENOENT if it
    does not exist.
    """
    base_fd = os.open(base, _DIRECTORY)
    try:
        fd = _open_at(base_fd, relative or ".", flags)
    finally:
        os.close(base_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories_beneath(base: Path, relative: str, mode: int) -> None:
    """Create the missing directories of the path `relative` inside `base`, with exactly `mode` (no umask)."""
    parts = PurePosixPath(relative).parts
    for index, part in enumerate(parts):
        try:
            with open_beneath(base, "/".join(parts[: index + 1])):
                continue
        except FileNotFoundError:  # this part is missing: make it
            pass
        with open_beneath(base, "/".join(parts[:index]), _DIRECTORY) as parent:
            try:
                os.mkdir(part, dir_fd=parent)
            except FileExistsError:  # another process created it first, or a dangling link
                continue
            made = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                os.fchmod(made, mode)
            finally:
                os.close(made)


def make_private(path: Path, mode: int = 0o750) -> None:
    """Create a directory and its missing parents, all with exactly `mode`; an existing directory is left unchanged.

    Use it only for paths that no container can write to, since links are followed.
    """
    try:
        path.mkdir(mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    except FileNotFoundError:
        make_private(path.parent, mode)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode)
    path.chmod(mode)  # whatever the umask is


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with everything below it; succeed if it does not exist.

    Nested directories are moved up to `path` while they are emptied, so that a deep tree costs neither stack nor
    descriptors. Raises OSError: EBUSY for a mount point, which is not changed.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:  # removed before: the call is idempotent
        return
    if not stat.S_ISDIR(mode):
        path.unlink(missing_ok=True)
        return
    if _try_rmdir(str(path)):
        return
    top = _open_directory(str(path))
    try:
        _empty(top)
    finally:
        os.close(top)
    path.rmdir()


def _empty(top: int) -> None:
    names = (f".kubeletx-removing-{number}" for number in range(1 << 62))
    while entries := _entries(top):
        for name, is_directory in entries:
            if not is_directory:
                os.unlink(name, dir_fd=top)
            elif not _try_rmdir(name, dir_fd=top):
                _lift(top, name, names)
                os.rmdir(name, dir_fd=top)


def _lift(top: int, name: str, names: Iterator[str]) -> None:
    """Empty the directory `name` in `top`: remove its files, move its directories up to `top`.

    `names`: new names for the moved directories.
    """
    inner = _open_directory(name, dir_fd=top)
    try:
        while entries := _entries(inner):
            for child, is_directory in entries:
                if not is_directory:
                    os.unlink(child, dir_fd=inner)
                elif not _try_rmdir(child, dir_fd=inner):
                    _move(child, inner, top, names)
    finally:
        os.close(inner)


def _move(child: str, inner: int, top: int, names: Iterator[str]) -> None:
    for name in names:
        try:
            os.rename(child, name, src_dir_fd=inner, dst_dir_fd=top)
        except OSError as err:
            # A container may have used such a name itself.
            if err.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
        else:
            return


def _entries(fd: int) -> list[tuple[str, bool]]:
    """Return up to `_AT_ONCE` entries of a directory as (name, is directory).

    The number is limited, since a container may have made more entries than fit in memory.
    """
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]


def _try_rmdir(name: str, *, dir_fd: int | None = None) -> bool:
    """Remove the directory and return True; return False if it is not empty.

    Raises OSError; for a mount point, empty or not, with EBUSY.
    """
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except OSError as err:
        if err.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def _open_directory(name: str, *, dir_fd: int | None = None) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
    except PermissionError:
        # Without root: a process of the same user has removed the owner's permissions.
        os.chmod(name, 0o700, dir_fd=dir_fd)
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)


def _open_at(base_fd: int, relative: str, flags: int) -> int:
    if PurePosixPath(relative).is_absolute():
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    # EAGAIN: a rename went on meanwhile, so the kernel could not be sure of the result.
    for _ in range(100):
        try:
            return call(
                "syscall",
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(base_fd),
                ctypes.c_char_p(os.fsencode(relative)),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
                path=relative,
            )
        except OSError as error:
            if error.errno == errno.ENOSYS:
                return _walk(base_fd, relative, flags)
            if error.errno != errno.EAGAIN:
                raise
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), relative)


def _walk(base_fd: int, relative: str, flags: int) -> int:
    """Open a path on a kernel without openat2: one component at a time, without following links."""
    *parents, last = PurePosixPath(relative).parts or (".",)
    if ".." in (*parents, last):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
    fd = os.dup(base_fd)
    try:
        for part in parents:
            inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)
