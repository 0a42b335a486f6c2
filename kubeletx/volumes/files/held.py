"""`HeldDirectory`: access to files in a directory that a pod may write to, through the directory's open descriptor.

A pod with a hostPath to the log directory, or to the agent's root directory, can put a link, a FIFO or a device where
the agent expects its own file. `HeldDirectory` therefore looks up every name in an open directory, follows no link,
opens regular files only and never waits for the other end of a FIFO. The number of names that it returns has a limit.

All functions block and raise OSError: ENOENT if the name does not exist, EINVAL if it is not a regular file, ELOOP or
ENOTDIR if a directory in the path is a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

MAX_NAMES: Final = 10_000
"""Maximum number of names that a listing of one directory returns; further entries are left out."""
MAX_PENDING: Final = 1_000_000
"""Maximum number of directories that `walk` keeps in memory for a later visit; each costs about 60 bytes."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALWAYS: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class HeldDirectory:
    """An open directory. Its files are opened through its descriptor, so that replacing its path has no effect.

    `path`: path of the directory, for messages only.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open an existing regular file and return its descriptor, which the caller closes."""
        return open_regular(name, flags, dir_fd=self.fd)

    def open_or_create(self, name: str, flags: int, mode: int) -> int:
        """Open like `open`, but create a missing file with exactly `mode`, regardless of the umask."""
        try:
            return self.open(name, flags)
        except FileNotFoundError:
            return self._create(name, flags, mode)

    def replace(self, name: str, mode: int) -> int:
        """Unlink `name` if it exists, create an empty file of this name for writing, and return its descriptor."""
        self.unlink(name)
        return self._create(name, os.O_WRONLY, mode)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the stat result of the entry `name`, of the link itself if it is one; None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def files(self, prefix: str = "") -> list[str]:
        """Return the sorted names of regular files whose name begins with `prefix`; at most `MAX_NAMES`."""
        return self._names(
            lambda entry: entry.name.startswith(prefix) and entry.is_file(follow_symlinks=False)
        )

    def names(self, prefix: str) -> list[str]:
        """Return the sorted names of all entries except directories whose name begins with `prefix`.

        Links and FIFOs are included. At most `MAX_NAMES` are returned.
        """
        return self._names(
            lambda entry: entry.name.startswith(prefix) and not entry.is_dir(follow_symlinks=False)
        )

    def directories(self) -> list[str]:
        """Return the names of entries that are directories, sorted; at most `MAX_NAMES`."""
        return self._names(lambda entry: entry.is_dir(follow_symlinks=False))

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a regular file.

        Raises OSError with EFBIG if it has more than `limit` bytes.
        """
        with os.fdopen(self.open(name), "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(self.path / name))
        return data

    def rename(self, source: str, target: str) -> None:
        """Rename a file inside the directory; an existing `target` is replaced."""
        os.rename(source, target, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a name that is not a directory; succeeds if it does not exist."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return

    def link(self, source: str, target: str) -> None:
        """Add the hard link `target` to the file `source`; a symbolic link is linked itself, not followed."""
        os.link(source, target, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)

    def _create(self, name: str, flags: int, mode: int) -> int:
        fd = os.open(
            name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.fd
        )
        os.fchmod(fd, mode)
        return fd

    def _names(self, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with os.scandir(self.fd) as entries:
            return sorted(islice((entry.name for entry in entries if is_wanted(entry)), MAX_NAMES))


@contextmanager
def hold_directory(path: Path, *, depth: int = 2, make: int | None = None) -> Iterator[HeldDirectory]:
    """Open the directory `path` for the duration of the block.

    `depth`: number of names at the end of `path` that must not be links; the path before them is trusted. `make`: mode
    with which missing directories among these names are created; None: a missing directory raises FileNotFoundError.
    """
    fd = os.open(path.parents[depth - 1], _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for name in path.parts[-depth:]:
            inner = _open_directory(name, fd, make)
            os.close(fd)
            fd = inner
        yield HeldDirectory(fd, path)
    finally:
        os.close(fd)


def open_regular(path: str | Path, flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """Open a regular file and return its descriptor.

    Raises OSError if `path` itself is a link or no regular file. The type is checked before the open, since
    merely opening a device can start a watchdog.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.open(f"/proc/self/fd/{descriptor}", flags | _ALWAYS)
    finally:
        os.close(descriptor)


def _open_directory(name: str, dir_fd: int, make: int | None) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        if make is None:
            raise
    os.mkdir(name, make, dir_fd=dir_fd)
    fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    os.fchmod(fd, make)
    return fd


class TreeVisitor(Protocol):
    """Callback of `walk`, called once for each entry.

    `directory`: descriptor of the directory that contains the entry.
    """

    def __call__(self, directory: int, entry: os.DirEntry[str], /) -> bool:
        """Visit one entry. Returns True to descend into it, if it is a directory."""
        ...


def walk(path: Path, visit: TreeVisitor) -> None:
    """Call `visit` for every entry below the directory `path`, which must not be a link; no link is followed.

    A deep tree costs neither stack nor descriptors, and a directory with many files costs no memory. Directories that
    vanish or cannot be opened are left out, and so are directories beyond `MAX_PENDING`.
    """
    current = os.open(path, _DIRECTORY)
    try:
        pending = _visit(current, visit, MAX_PENDING)
        above: list[tuple[tuple[int, int], list[str]]] = []
        waiting = len(pending)
        while pending or above:
            if not pending:
                identity, pending = above.pop()
                current = _go_to("..", current)
                if _identity(current) != identity:
                    return  # the directory was moved during the walk
                continue
            name = pending.pop()
            waiting -= 1
            here = _identity(current)
            try:
                current = _go_to(name, current)
            except OSError:  # removed, or replaced by a link, since it was listed
                continue
            above.append((here, pending))
            pending = _visit(current, visit, MAX_PENDING - waiting)
            waiting += len(pending)
    finally:
        os.close(current)


def _visit(directory: int, visit: TreeVisitor, limit: int) -> list[str]:
    """Call `visit` for the entries of one directory; return at most `limit` names of directories to descend into."""
    names: list[str] = []
    try:
        entries = os.scandir(directory)
    except OSError:  # removed while the walk was on its way
        return names
    with entries:
        for entry in entries:
            go_in = visit(directory, entry)
            if go_in and len(names) < limit and entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
    return names


def _go_to(name: str, current: int) -> int:
    inner = os.open(name, _DIRECTORY, dir_fd=current)
    os.close(current)
    return inner


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino
