"""`FileWatcher`: waits for files to change. One inotify descriptor serves all waiters; the event loop reads it.

If the kernel gives no inotify descriptor (limits reached), each wait is a short pause instead, so that readers still
make progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kubeletx.linux.inotify import (
    IN_ATTRIB,
    IN_CREATE,
    IN_DELETE,
    IN_DONT_FOLLOW,
    IN_MODIFY,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_ONLYDIR,
    Inotify,
    InotifyEvent,
)

_MASK: Final = (
    IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW
)
_FALLBACK_SECONDS: Final = 0.1


class FileWatcher:
    """Waits for changes of files in directories. Use it in one event loop only; close it at the end."""

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._directories: dict[int, Path] = {}
        self._watches: dict[Path, int] = {}
        self._waiters: dict[Path, set[asyncio.Event]] = {}

    @contextmanager
    def watch(self, directory: Path) -> Iterator[asyncio.Event]:
        """Context with an event that is set at every change of a file in `directory`.

        Clear the event before reading a file, so that no change is missed.
        """
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
        """Wait until `changed` (from `watch`) is set, but at most `seconds`; without inotify, only pause shortly.

        The caller must read the file after each return, since it may have changed in every case.
        """
        limit = seconds if self._inotify is not None else min(seconds, _FALLBACK_SECONDS)
        try:
            async with asyncio.timeout(limit):
                await changed.wait()
        except TimeoutError:  # readers look at the file themselves at each return
            return

    def close(self) -> None:
        """Stop watching; idempotent."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._directories.clear()
        self._watches.clear()

    def _add(self, directory: Path) -> None:
        if directory in self._watches:
            return
        with suppress(OSError):  # no descriptor, no watch, or no such directory: `wait` pauses instead
            if self._inotify is None:
                self._inotify = Inotify(self._on_events)
            watch = self._inotify.watch_directory(str(directory), _MASK)
            self._watches[directory] = watch
            self._directories[watch] = directory

    def _drop(self, directory: Path) -> None:
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._directories.pop(watch, None)
            if self._inotify is not None:
                self._inotify.unwatch(watch)
        if not self._waiters:
            self.close()

    def _on_events(self, events: Sequence[InotifyEvent]) -> None:
        for event in events:
            directories = list(self._waiters) if event.is_overflow else [self._directories.get(event.watch)]
            for directory in directories:
                for waiter in self._waiters.get(directory, ()) if directory is not None else ():
                    waiter.set()
