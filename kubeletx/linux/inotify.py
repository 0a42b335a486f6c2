"""Linux inotify: reports the names that change in a directory.

Python's standard library has no inotify, so the system calls are made through `libc`; docs/decisions/0007 says why no
library is used. Each `Inotify` has its own kernel queue. Whenever the queue is readable, the event loop reads its
events and passes them to a callback. If the queue overflows, the callback gets an event with `is_overflow`: anything
may have changed. Source: inotify(7).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from .libc import call

IN_MODIFY: Final = 0x2
IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_UNMOUNT: Final = 0x2000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ONLYDIR: Final = 0x1000000
IN_DONT_FOLLOW: Final = 0x2000000

GONE: Final = IN_DELETE | IN_MOVED_FROM
CHANGED: Final = IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ATTRIB
ENTRIES: Final = CHANGED | GONE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
LOST: Final = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED
_HEADER: Final = struct.Struct("iIII")
_READ_BYTES: Final = 64 * 1024


class InotifyEvent(NamedTuple):
    """One change in a watched directory. `watch`: number that `watch_directory` returned.

    `mask`: kind of the change, as bits ``IN_...``. `name`: the changed entry; empty if the event is about the
    directory itself.
    """

    watch: int
    mask: int
    name: str

    @property
    def is_overflow(self) -> bool:
        """True if events were lost, so that everything must be checked."""
        return bool(self.mask & IN_Q_OVERFLOW)


class InotifyQueue:
    """A kernel queue of file system events, for a program with a loop of its own. `close` it at the end.

    `descriptor`: readable while events wait.
    """

    def __init__(self) -> None:
        """Raises OSError if the kernel's limit of queues is reached."""
        self.descriptor = call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def watch_directory(self, path: str, mask: int = ENTRIES) -> int:
        """Watch a directory and its entries, but not its subdirectories' entries; returns the number of the watch.

        Raises OSError: FileNotFoundError or NotADirectoryError if there is no such directory.
        """
        return call("inotify_add_watch", self.descriptor, os.fsencode(path), mask, path=path)

    def unwatch(self, watch: int) -> None:
        """End the watch with the number `watch`; succeeds if it has ended already."""
        with suppress(OSError):  # EINVAL: the kernel ended it with the directory
            call("inotify_rm_watch", self.descriptor, watch)

    def read(self) -> list[InotifyEvent]:
        """Return the events that wait, without blocking."""
        try:
            return _parse(os.read(self.descriptor, _READ_BYTES))
        except BlockingIOError:  # an earlier read took these events
            return []

    def close(self) -> None:
        """Close the queue and end all its watches; idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Inotify(InotifyQueue):
    """A queue that the running event loop reads. Belongs to the event loop in which it was made."""

    def __init__(self, on_events: Callable[[list[InotifyEvent]], None]) -> None:
        """`on_events`: called from the event loop with each batch of events. Raises OSError as `InotifyQueue` does."""
        import asyncio  # a program without an event loop does not pay for it

        super().__init__()
        self._on_events = on_events
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.descriptor, self._deliver)

    def close(self) -> None:
        if self.descriptor >= 0:
            self._loop.remove_reader(self.descriptor)
        super().close()

    def _deliver(self) -> None:
        if events := self.read():
            self._on_events(events)


def _parse(data: bytes) -> list[InotifyEvent]:
    events = []
    offset = 0
    while offset < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        name = data[offset : offset + length].rstrip(b"\0")
        offset += length
        events.append(InotifyEvent(watch, mask, os.fsdecode(name)))
    return events
