"""Classifies SQLite's errors, and converts them to `KubeletxError` with a remedy."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from kubeletx.api import Internal, KubeletxError, Unavailable

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_FIXES: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("disk full", "free space on its filesystem; writing then resumes"),
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
    """Return True if the error means that the content of the database file is damaged."""
    return code_of(error) in _CORRUPT


def is_of_the_file(error: BaseException) -> bool:
    """Return True if the error concerns the whole database file, such as a full disk, and not only this statement.

    After such an error SQLite may have rolled back the whole transaction.
    """
    return code_of(error) in _FIXES


def translate(error: BaseException, path: Path) -> KubeletxError:
    """Convert SQLite's error to Unavailable with the path of the file and a remedy; an unknown error to Internal."""
    row = _FIXES.get(code_of(error) or -1)
    if row is None:
        return Internal(f"state database {path}: {error}")
    problem, fix = row
    return Unavailable(f"state database {path}: {problem}; {fix}")
