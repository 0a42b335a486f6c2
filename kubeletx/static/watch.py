"""`PathWatch`: reports which entries of the manifest path change, and when the path itself changes.

If the path is a directory, that directory is watched; if it is a file, or missing, its parent. If neither can
be watched (no parent, no inotify), only the regular list finds changes; this is logged once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import structlog

from kubeletx.node.inotify import GONE, IN_CREATE, IN_MOVE_SELF, LOST, Inotify, InotifyEvent

log = structlog.get_logger(__name__)

_SWAPPED: Final = "..data"
"""Name of the link that atomic writers such as the kubelet's replace, which changes all files of the
directory at once.
"""


class PathWatch:
    """Watches the manifest path with inotify and calls back from the event loop.

    Call `arm` after each call of `on_path`.
    """

    def __init__(
        self,
        path: str,
        *,
        on_changed: Callable[[str, bool], None],
        on_gone: Callable[[str], None],
        on_path: Callable[[], None],
    ) -> None:
        """`on_changed`: called with a file, and True if it was only created; `on_gone`: called with a removed
        file.

        `on_path`: called when everything must be listed again.
        """
        self._path = path
        self._on_changed, self._on_gone, self._on_path = on_changed, on_gone, on_path
        self._inotify: Inotify | None = None
        self._directory: int | None = None
        self._parent: int | None = None
        self._warned = False

    def arm(self) -> None:
        """Watch the directory, or its parent if it is no directory.

        Call it before each list, so that no change is missed.
        """
        try:
            if self._inotify is None:
                self._inotify = Inotify(self._on_events)
            if os.path.isdir(self._path):
                # The same directory gives the same number again, another one in its place a new one.
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
                self._inotify.unwatch(event.watch)  # it would go on telling of the moved directory
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
