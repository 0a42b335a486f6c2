"""`FlexJournal`: the entries of all volumes, one file each in ``<state directory>/volumes``.

A file is on disk before its step is begun, so that a volume is released after a crash at any step, also if the options
of the volume are lost. A damaged file is set aside: `release` then relies on the mount table. A file that cannot be
read now, or that a newer version has written, is kept, and blocks only its volume.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from kubeletx.api import Unavailable
from kubeletx.api.names import Event

from ..errors import file_error
from .entries import VERSION, FlexEntry
from .threads import Threads

log = structlog.get_logger(__name__)

_SUFFIX: Final = ".json"
_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class FlexJournal:
    """Entries in memory and on disk. Callers hold the lock of an entry's key while they change it."""

    def __init__(self, directory: Path, threads: Threads) -> None:
        """`directory`: made by `load`."""
        self._directory = directory
        self._threads = threads
        self._entries: dict[str, FlexEntry] = {}
        self._blocked: set[str] = set()
        """Keys of files that could not be read, or are of a newer version."""
        self._is_warned = False

    def __iter__(self) -> Iterator[FlexEntry]:
        return iter(tuple(self._entries.values()))

    async def load(self) -> None:
        """Read the entries that earlier agent processes have written."""
        try:
            found = await self._threads.run(_read_all, self._directory)
        except OSError as error:
            raise file_error("cannot read the journal of FlexVolumes", error) from error
        self._entries = {key: one.entry for key, one in found.items() if one.entry is not None}
        self._blocked = {key for key, one in found.items() if one.problem}
        for one in found.values():
            if one.problem:
                log.warning("Failed to read an entry of the journal", err=one.problem)

    async def check(self, keys: Iterable[str]) -> None:
        """Raise Unavailable if the file of one of these keys still cannot be read, or is of a newer version."""
        for key in self._blocked.intersection(keys):
            found = await self._threads.run(_read, self._path(key))
            if found.problem:
                raise Unavailable(found.problem, reason=Event.FAILED_MOUNT)
            self._blocked.discard(key)
            if found.entry is not None:
                self._entries[key] = found.entry

    def get(self, key: str) -> FlexEntry | None:
        """Return the entry with this key; None if there is none."""
        return self._entries.get(key)

    def find(self, target: str) -> FlexEntry | None:
        """Return the entry with a use of this target; None if there is none."""
        return next((one for one in self._entries.values() if target in one.uses), None)

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
        """Write or remove an entry's file, then the entry in memory, also if the caller is cancelled meanwhile."""
        path, done = self._path(key), []

        def change() -> None:
            if entry is None:
                remove_file(path)
            else:
                write_file(path, msgspec.json.encode(entry))
            done.append(entry)

        try:
            await self._threads.run(change)
        except OSError as error:
            if not is_release or error.errno not in _IS_FULL:
                raise _unwritten(path, error) from error
            done.append(entry)
            if not self._is_warned:
                self._is_warned = True
                log.warning("Failed to update an entry of the journal, releasing it anyway", err=str(error))
        finally:
            if done and entry is None:
                self._entries.pop(key, None)
            elif done and entry is not None:
                self._entries[key] = entry

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"


class _Head(msgspec.Struct, frozen=True):
    """Part of an entry that all versions have."""

    version: int = VERSION


class _Found(NamedTuple):
    """Content of one file: an entry, or a problem for which it is kept; neither if it was set aside."""

    entry: FlexEntry | None = None
    problem: str = ""


def read_entries(directory: Path) -> dict[str, FlexEntry]:
    """Return the entries of a directory by key, and make the directory if it is missing. Blocks."""
    found = _read_all(directory)
    return {key: one.entry for key, one in found.items() if one.entry is not None}


def _read_all(directory: Path) -> dict[str, _Found]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = sorted(directory.glob(f"[!.]*{_SUFFIX}"))
    return {path.name.removesuffix(_SUFFIX): _read(path) for path in paths}


def _read(path: Path) -> _Found:
    """Read one file; set it aside if it is damaged. Blocks."""
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Head).version
        if version > VERSION:
            return _Found(
                problem=f"{path} has version {version}, and this kubeletx-flexvolume knows version {VERSION}; install the "
                "newer one again, or remove the file: the volume is then released by the mount table"
            )
        entry = msgspec.json.decode(data, type=FlexEntry)
        if entry.key == path.name.removesuffix(_SUFFIX):
            return _Found(entry)
        problem = "it is of another volume than its name says"
    except FileNotFoundError:
        return _Found()
    except IsADirectoryError as error:
        problem = str(error)
    except OSError as error:
        return _Found(problem=f"{path} cannot be read: {error.strerror}; it is tried again")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = str(error)
    log.warning("Set an entry of the journal aside", path=str(path), err=problem)
    try:
        path.replace(path.with_suffix(".damaged"))
    except OSError as error:
        return _Found(problem=f"{path} is damaged and cannot be renamed: {error.strerror}; remove it")
    return _Found()


def _unwritten(path: Path, error: OSError) -> Unavailable:
    fix = "free space on its disk" if error.errno in _IS_FULL else "it is tried again"
    return Unavailable(f"{path} cannot be written: {error.strerror}; {fix}", reason=Event.FAILED_MOUNT)


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole, and flush it and its directory to the disk. Blocks."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
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
