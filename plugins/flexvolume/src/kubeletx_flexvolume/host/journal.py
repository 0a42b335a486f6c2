"""`FlexJournal`: the entries of all volumes, one file each in ``<state directory>/volumes``.

A file is on disk before its step is begun, so that a volume is released after a crash at any step, also if the options
of the volume are lost. A damaged file is set aside: `release` then relies on the mount table. A file that cannot be
read now, or that a newer version has written, is kept, and blocks only its volume.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Blocking, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.json_files import JsonFiles

from ..errors import file_error
from .entries import VERSION, FlexEntry

log = structlog.get_logger(__name__)

_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def entry_files(directory: Path) -> JsonFiles[FlexEntry]:
    """Return the files of a journal."""
    return JsonFiles(
        directory,
        FlexEntry,
        version=VERSION,
        name=lambda entry: entry.key,
        without=": the volume is then released by the mount table",
    )


class FlexJournal:
    """Entries in memory and on disk. Callers hold the lock of an entry's key while they change it."""

    def __init__(self, files: JsonFiles[FlexEntry], blocking: Blocking) -> None:
        """`blocking`: finishes its function also if the caller is cancelled.

        A late write would otherwise replace what the next call for the volume has written.
        """
        self._files = files
        self._blocking = blocking
        self._entries: dict[str, FlexEntry] = {}
        self._blocked: set[str] = set()
        """Keys of files that could not be read, or are of a newer version."""
        self._is_warned = False

    async def load(self) -> None:
        try:
            loaded = await self._blocking(self._files.load)
        except OSError as error:
            raise file_error("cannot read the journal of FlexVolumes", error) from error
        self._entries, self._blocked = loaded.values, set(loaded.problems)
        for problem in loaded.problems.values():
            log.warning("Failed to read an entry of the journal", err=str(problem))

    async def check(self, keys: Iterable[str]) -> None:
        """Raise Unavailable if the file of one of these keys still cannot be read, or is of a newer version."""
        for key in self._blocked.intersection(keys):
            try:
                entry = await self._blocking(self._files.read, key)
            except Unavailable as error:
                error.reason = Event.FAILED_MOUNT
                raise
            self._blocked.discard(key)
            if entry is not None:
                self._entries[key] = entry

    def get(self, key: str) -> FlexEntry | None:
        return self._entries.get(key)

    def find(self, target: str) -> FlexEntry | None:
        """Return the entry with a use of this target; None if there is none."""
        return next((entry for entry in self._entries.values() if target in entry.uses), None)

    async def put(self, entry: FlexEntry, *, is_release: bool = False) -> FlexEntry:
        """Store an entry and return it; it is on disk then. Raises Unavailable if it cannot be written.

        `is_release`: with a full disk it is stored in memory only. For a step that undoes another one, which may be
        done twice: what is on disk then says more than is there.
        """
        if self._entries.get(entry.key) != entry:
            await self._change(entry.key, entry, is_release=is_release)
        return entry

    async def remove(self, key: str) -> None:
        """Remove an entry; succeeds if there is none."""
        if key in self._entries:
            await self._change(key, None)

    async def _change(self, key: str, entry: FlexEntry | None, *, is_release: bool = False) -> None:
        is_done = False

        def change() -> None:
            nonlocal is_done
            if entry is None:
                self._files.remove(key)
            else:
                self._files.put(entry)
            is_done = True

        try:
            await self._blocking(change)
        except OSError as error:
            is_full = error.errno in _IS_FULL
            if not is_release or not is_full:
                fix = "free space on its disk" if is_full else "it is tried again"
                path = self._files.path(key)
                raise Unavailable(
                    f"{path} cannot be written: {error.strerror}; {fix}", reason=Event.FAILED_MOUNT
                ) from error
            is_done = True
            if not self._is_warned:
                self._is_warned = True
                log.warning("Failed to update an entry of the journal, releasing it anyway", err=str(error))
        finally:
            # Also if the caller was cancelled meanwhile: `_blocking` has waited for the file.
            if is_done and entry is None:
                self._entries.pop(key, None)
            elif is_done and entry is not None:
                self._entries[key] = entry
