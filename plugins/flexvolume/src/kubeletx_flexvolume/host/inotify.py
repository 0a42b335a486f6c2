"""`DirectoryWatch`: reports that something changed in one of several directories. Source: inotify(7).

Python's standard library has no inotify; the system calls are made through ctypes. Events say only that a look is
due, so that lost events (a full queue) and unknown ones need no special care.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

_ATTRIBUTES: Final = 0x4
_CLOSED_AFTER_WRITE: Final = 0x8
_MOVED: Final = 0x40 | 0x80
_CREATED: Final = 0x100
_DELETED: Final = 0x200
_ITSELF: Final = 0x400 | 0x800
_DIRECTORIES_ONLY: Final = 0x1000000
_EVENTS: Final = (
    _ATTRIBUTES | _CLOSED_AFTER_WRITE | _MOVED | _CREATED | _DELETED | _ITSELF | _DIRECTORIES_ONLY
)
_READ_BYTES: Final = 64 * 1024


class DirectoryWatch:
    """Watches a changing set of directories, in the running event loop."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change`: called after changes. Raises OSError if the kernel's limit of watches' owners is reached."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._on_change = on_change
        self._watches: dict[str, int] = {}
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def watch(self, directories: Iterable[str]) -> bool:
        """Watch these directories and no others; return True if one of them was not watched before.

        Missing directories are left out. Raises OSError if the kernel's limit of watches is reached.
        """
        before, self._watches = self._watches, {}
        for path in directories:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                self._watches[path] = self._add(path)
        for number in set(before.values()) - set(self._watches.values()):
            self._libc.inotify_rm_watch(self._descriptor, number)
        return not set(self._watches.items()) <= set(before.items())

    def close(self) -> None:
        """End all watches; idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _add(self, path: str) -> int:
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _EVENTS)
        return self._checked(number, path)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, _READ_BYTES)
            self._on_change()

    def _checked(self, result: int, path: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return result
