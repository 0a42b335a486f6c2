"""`FlexJournal`: the entries of all volumes, one file each in ``<state directory>/volumes``.

A file is on disk before its step is begun, so that a volume is released after a crash at any step, also if the options of the
volume are lost. A file that cannot be read is set aside: `release` then relies on the mount table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ..errors import file_error
from .entries import FlexEntry
from .threads import Threads

log = structlog.get_logger(__name__)

_SUFFIX: Final = ".json"


class FlexJournal:
    """Entries in memory and on disk. Callers hold the lock of an entry's key while they change it."""

    def __init__(self, directory: Path, threads: Threads) -> None:
        """`directory`: made by `load`."""
        self._directory = directory
        self._threads = threads
        self._entries: dict[str, FlexEntry] = {}

    def __iter__(self) -> Iterator[FlexEntry]:
        return iter(tuple(self._entries.values()))

    async def load(self) -> None:
        """Read the entries that earlier agent processes have written."""
        try:
            self._entries = await self._threads.run(read_entries, self._directory)
        except OSError as error:
            raise file_error("cannot read the journal of FlexVolumes", error) from error

    def get(self, key: str) -> FlexEntry | None:
        """Return the entry with this key; None if there is none."""
        return self._entries.get(key)

    def find(self, target: str) -> FlexEntry | None:
        """Return the entry with a use of this target; None if there is none."""
        return next((one for one in self._entries.values() if target in one.uses), None)

    async def put(self, entry: FlexEntry) -> FlexEntry:
        """Store an entry and return it; it is on disk then. Raises Unavailable if it cannot be written."""
        if self._entries.get(entry.key) != entry:
            await self._change(entry.key, entry)
        return entry

    async def remove(self, key: str) -> None:
        """Remove an entry; succeeds if there is none."""
        if key in self._entries:
            await self._change(key, None)

    async def _change(self, key: str, entry: FlexEntry | None) -> None:
        """Write or remove an entry's file, then the entry in memory, also if the caller is cancelled meanwhile."""
        path, done = self._directory / f"{key}{_SUFFIX}", []

        def change() -> None:
            if entry is None:
                remove_file(path)
            else:
                write_file(path, msgspec.json.encode(entry))
            done.append(entry)

        try:
            await self._threads.run(change)
        except OSError as error:
            raise file_error("cannot write the journal of FlexVolumes", error) from error
        finally:
            if done and entry is None:
                self._entries.pop(key, None)
            elif done and entry is not None:
                self._entries[key] = entry


def read_entries(directory: Path) -> dict[str, FlexEntry]:
    """Return the entries of a directory by key, and make the directory if it is missing. Blocks."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = {}
    for path in sorted(directory.glob(f"[!.]*{_SUFFIX}")):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=FlexEntry)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("Set an entry of the journal aside", path=str(path), err=str(error))
            path.replace(path.with_suffix(".damaged"))
            continue
        entries[path.name.removesuffix(_SUFFIX)] = entry
    return entries


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole, and flush it and its directory to the disk. Blocks."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file, so that it stays removed after a crash. Blocks."""
    path.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
