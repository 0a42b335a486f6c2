"""Waiting for files to change: one inotify descriptor for all who wait, read by the event loop.

Where the kernel gives no inotify descriptor (limits reached), waiting falls back to a short pause, so that
followers still move.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

_IN_MODIFY: Final = 0x002
_IN_ATTRIB: Final = 0x004
_IN_MOVED: Final = 0x0C0
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_IN_ONLYDIR: Final = 0x0100_0000
_IN_DONT_FOLLOW: Final = 0x0200_0000
_MASK: Final = _IN_MODIFY | _IN_ATTRIB | _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_ONLYDIR | _IN_DONT_FOLLOW
_HEADER: Final = struct.Struct("iIII")
_FALLBACK_SECONDS: Final = 0.1


class FileWatcher:
    """Tells when something in a directory changed. Belongs to one event loop; close it at the end."""

    def __init__(self) -> None:
        self._fd = -1
        self._directories: dict[int, Path] = {}
        self._watches: dict[Path, int] = {}
        self._waiters: dict[Path, set[asyncio.Event]] = {}

    @contextmanager
    def watch(self, directory: Path) -> Iterator[asyncio.Event]:
        """An event that is set at every change of a file in `directory`; clear it before looking."""
        changed = asyncio.Event()
        self._waiters.setdefault(directory, set()).add(changed)
        self._add(directory)
        try:
            yield changed
        finally:
            self._waiters[directory].discard(changed)
            if not self._waiters[directory]:
                del self._waiters[directory]
                self._drop(directory)

    async def wait(self, changed: asyncio.Event, seconds: float) -> None:
        """Until `changed` is set, at most `seconds`."""
        limit = seconds if self._fd >= 0 else min(seconds, _FALLBACK_SECONDS)
        try:
            async with asyncio.timeout(limit):
                await changed.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Stop watching; idempotent."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._directories.clear()
        self._watches.clear()

    def _add(self, directory: Path) -> None:
        if directory in self._watches or not self._open():
            return
        watch = _libc().inotify_add_watch(self._fd, os.fsencode(directory), _MASK)
        if watch >= 0:
            self._watches[directory] = watch
            self._directories[watch] = directory

    def _open(self) -> bool:
        if self._fd < 0:
            self._fd = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._fd >= 0:
                asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self._fd >= 0

    def _drop(self, directory: Path) -> None:
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._directories.pop(watch, None)
            _libc().inotify_rm_watch(self._fd, watch)
        if not self._waiters:
            self.close()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return
        position = 0
        while position + _HEADER.size <= len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            overflow = bool(mask & 0x4000)  # the kernel dropped events: everyone looks
            found = list(self._waiters) if overflow else [self._directories.get(watch)]
            for directory in found:
                if directory is not None:
                    for waiter in self._waiters.get(directory, ()):
                        waiter.set()


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
