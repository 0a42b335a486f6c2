"""Classifies SQLite's errors by what the caller can do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from kubeletx.api import Internal, KubeletxError, Unavailable

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_FIXES: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("disk full", "free space on its filesystem; writing goes on by itself"),
    sqlite3.SQLITE_IOERR: ("input/output error", "check the disk and free space on its filesystem"),
    sqlite3.SQLITE_READONLY: ("not writable", "make the file and its directory writable"),
    sqlite3.SQLITE_PERM: ("no permission", "make the file and its directory writable"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that its directory exists and is writable"),
    sqlite3.SQLITE_BUSY: ("locked", "another program holds it; close that program"),
    sqlite3.SQLITE_LOCKED: ("locked", "another program holds it; close that program"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "restart the agent: it sets the file aside and makes a new one"),
    sqlite3.SQLITE_NOTADB: (
        "not a database",
        "restart the agent: it sets the file aside and makes a new one",
    ),
}


def code_of(error: BaseException) -> int | None:
    """Return SQLite's primary result code of an error; None if the error is not one of SQLite's."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(origin, sqlite3.Error):
        return None
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF
    return sqlite3.SQLITE_FULL if "disk is full" in str(origin) else None


def is_corrupt(error: BaseException) -> bool:
    """Return True if the file's content is damaged."""
    return code_of(error) in _CORRUPT


def is_of_the_file(error: BaseException) -> bool:
    """Return True if the whole file is unusable now, not only this statement. SQLite rolls the transaction back."""
    return code_of(error) in _FIXES


def translate(error: BaseException, path: Path) -> KubeletxError:
    """Convert SQLite's error to Unavailable with the file's path and a remedy; to Internal if the error is unknown."""
    row = _FIXES.get(code_of(error) or -1)
    if row is None:
        return Internal(f"state database {path}: {error}")
    problem, fix = row
    return Unavailable(f"state database {path}: {problem}; {fix}")
