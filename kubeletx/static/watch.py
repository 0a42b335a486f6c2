"""`PathWatch`: reports which files at the manifest path change, and when the path itself changes.

If the path is a directory, that directory is watched. If it is a file, or missing, its parent directory is watched. If
that is impossible (no parent, no inotify), only the regular list of `FileSource` finds changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import structlog

from kubeletx.linux.inotify import GONE, IN_CREATE, IN_MOVE_SELF, LOST, Inotify, InotifyEvent

log = structlog.get_logger(__name__)

_SWAPPED: Final = "..data"
"""Name of the symbolic link in a mounted config map; replacing it changes all files of the directory at once."""


class PathWatch:
    """Watches the manifest path with inotify, and calls the callbacks from the event loop.

    Call `arm` before each list of the files; nothing is watched before the first call.
    """

    def __init__(
        self,
        path: str,
        *,
        on_changed: Callable[[str, bool], None],
        on_gone: Callable[[str], None],
        on_path: Callable[[], None],
    ) -> None:
        """`on_changed`: called with the path of a file, and True if the file was only created, perhaps not written yet.

        `on_gone`: called with the path of a removed file. `on_path`: called when all files must be listed again, such
        as after the directory was replaced.
        """
        self._path = path
        self._on_changed, self._on_gone, self._on_path = on_changed, on_gone, on_path
        self._inotify: Inotify | None = None
        self._directory: int | None = None
        self._parent: int | None = None
        self._warned = False

    def arm(self) -> None:
        """Watch the path if it is a directory, else its parent directory. A failure is logged once.

        Call it before each list of the files, so that no change is missed.
        """
        try:
            if self._inotify is None:
                self._inotify = Inotify(self._on_events)
            if os.path.isdir(self._path):
                # inotify returns the same watch number for the same directory, and a new one if it was replaced.
                watch = self._inotify.watch_directory(self._path)
                self._drop(self._directory, self._parent, but=watch)
                self._directory, self._parent = watch, None
            else:
                watch = self._inotify.watch_directory(os.path.dirname(self._path))
                self._drop(self._directory, self._parent, but=watch)
                self._directory, self._parent = None, watch
        except (FileNotFoundError, NotADirectoryError):
            self._directory = self._parent = None
        except OSError as err:
            if not self._warned:
                log.warning("Cannot watch manifests; listing them instead", path=self._path, err=str(err))
            self._warned = True

    def close(self) -> None:
        """Stop watching; no callback comes after this."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _drop(self, *watches: int | None, but: int) -> None:
        for watch in watches:
            if watch is not None and watch != but and self._inotify is not None:
                self._inotify.unwatch(watch)

    def _on_events(self, events: list[InotifyEvent]) -> None:
        for event in events:
            if event.is_overflow:
                self._on_path()
            elif event.watch == self._directory:
                self._in_directory(event)
            elif event.watch == self._parent and event.name == os.path.basename(self._path):
                self._in_parent(event)

    def _in_directory(self, event: InotifyEvent) -> None:
        if event.mask & LOST:
            if event.mask & IN_MOVE_SELF and self._inotify is not None:
                self._inotify.unwatch(event.watch)  # it would report changes in the moved directory
            self._directory = None
            self._on_path()
        elif event.name == _SWAPPED:
            self._on_path()
        elif event.name and not event.name.startswith("."):
            self._tell(os.path.join(self._path, event.name), event.mask)

    def _in_parent(self, event: InotifyEvent) -> None:
        if event.mask & GONE or os.path.isdir(self._path):
            self._on_path()
        else:
            self._tell(self._path, event.mask)

    def _tell(self, path: str, mask: int) -> None:
        if mask & GONE:
            self._on_gone(path)
        else:
            self._on_changed(path, bool(mask & IN_CREATE))
