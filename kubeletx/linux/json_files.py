"""`JsonFiles`: values in a directory, one JSON file each, that survive a crash and a change of the program's version.

    readable           returned
    damaged            renamed to NAME.json.damaged, logged; from then on there is no file
    of a newer version kept as it is, Unavailable: the newer program still needs it
    not readable now   kept as it is, Unavailable: the next read may succeed

A value's own field `version` is stored with it; a file without it is of the first version. All functions block.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from kubeletx.api.errors import Unavailable

from .files import UNFINISHED, private_directory, read_regular, remove_file, replace_file

_T = TypeVar("_T", bound=msgspec.Struct)

log = structlog.get_logger(__name__)

SUFFIX: Final = ".json"
DAMAGED: Final = ".damaged"
"""Suffix that is added to the name of a damaged file."""
MAX_BYTES: Final = 64 * 1024 * 1024
_NOT_A_FILE: Final = frozenset({errno.EINVAL, errno.EFBIG, errno.ELOOP})
"""Errors of a path that is not a regular file, or is too large."""


class _Head(msgspec.Struct, frozen=True):
    version: int = 0


class LoadedFiles(NamedTuple, Generic[_T]):
    """Content of a directory by name of the file, without ``.json``. `problems`: files that were kept but not read."""

    values: dict[str, _T]
    problems: dict[str, Unavailable]


def read_json(path: Path, kind: type[_T], version: int, *, without: str = "") -> _T | None:
    """Return the value in the file; None if there is no file, or it was damaged and has been renamed.

    `version`: the newest that this program reads. `without`: sentence for the operator on what happens without the file.
    Raises Unavailable if the file was kept.
    """
    return _read(path, kind, version, without, lambda _: "")


def _read(path: Path, kind: type[_T], version: int, without: str, check: Callable[[_T], str]) -> _T | None:
    try:
        data = read_regular(path, MAX_BYTES)
        stored = msgspec.json.decode(data, type=_Head).version
        if stored > version:
            problem = f"{path} has version {stored}, and this program reads versions up to {version}"
            raise Unavailable(f"{problem}; install the newer program again, or remove the file{without}")
        value = msgspec.json.decode(data, type=kind)
        problem = check(value)
        if not problem:
            return value
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise Unavailable(f"{path} cannot be read: {error.strerror}; it is tried again") from error
        problem = error.strerror or str(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = str(error)
    set_aside(path, problem)
    return None


def set_aside(path: Path, problem: str) -> None:
    """Rename a damaged file to ``NAME.damaged``, replacing an earlier one, and log why. Raises Unavailable."""
    aside = path.with_name(f"{path.name}{DAMAGED}")
    try:
        path.replace(aside)
    except OSError as error:
        raise Unavailable(f"{path} is damaged and cannot be renamed: {error.strerror}; remove it") from error
    log.error("Set a damaged file aside", path=str(aside), err=problem)


class JsonFiles(Generic[_T]):
    """Values of one type in the files ``DIRECTORY/NAME.json``."""

    def __init__(
        self, directory: Path, kind: type[_T], *, version: int, name: Callable[[_T], str], without: str = ""
    ) -> None:
        """`directory`: of these files alone; it is made when needed, for this user only.

        `name`: returns the file's name for a value, without ``.json``; a file with another name is damaged, so a copy
        or a renamed file never counts for a second object. `version`, `without`: as in `read_json`.
        """
        self._directory = directory
        self._kind = kind
        self._version = version
        self._name = name
        self._without = without

    def load(self) -> LoadedFiles[_T]:
        """Return all values, in the order of their names, and remove what interrupted writes left. Raises OSError."""
        private_directory(self._directory)
        for path in self._directory.glob(f".*{UNFINISHED}"):
            path.unlink()
        loaded = LoadedFiles[_T]({}, {})
        for stem in sorted(path.name.removesuffix(SUFFIX) for path in self._directory.glob(f"[!.]*{SUFFIX}")):
            try:
                value = self.read(stem)
            except Unavailable as error:
                loaded.problems[stem] = error
                continue
            if value is not None:
                loaded.values[stem] = value
        return loaded

    def read(self, name: str) -> _T | None:
        """Return one value; None if there is none. Raises Unavailable if its file was kept but cannot be read."""
        return _read(
            self.path(name), self._kind, self._version, self._without, lambda v: self._misnamed(v, name)
        )

    def put(self, value: _T) -> None:
        """Store the value; it is on disk when the function returns. Raises OSError; then the former value is stored."""
        replace_file(self.path(self._name(value)), msgspec.json.encode(value))

    def remove(self, name: str) -> bool:
        """Remove a value, and return True; return False if there was none. Raises OSError."""
        return remove_file(self.path(name))

    def path(self, name: str) -> Path:
        """Return the path of a value's file."""
        return self._directory / f"{name}{SUFFIX}"

    def _misnamed(self, value: _T, name: str) -> str:
        actual = self._name(value)
        return "" if actual == name else f"it is of {actual}"
