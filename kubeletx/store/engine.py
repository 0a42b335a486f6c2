"""Opens the database file: sets its pragmas, and checks that it is not corrupt and has a known schema version.

The schema version is SQLite's ``user_version``; it is 0 in a new file. New tables need no new version: they are
created when the file is opened. Version 1 is the first, so there is no migration yet. All functions run on the thread
of the store. `translate` converts SQLite's errors to `KubeletxError` with a remedy.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import MetaData, create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from kubeletx.api import Internal, InvalidConfig, KubeletxError, Unavailable

SCHEMA_VERSION = 1
"""The schema version that this code reads and writes."""
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


class IntegrityError(Exception):
    """Raised if the file is not a usable database; the message says why."""


def connect(path: Path, tables: Sequence[MetaData]) -> Connection:
    """Open the database file and create the tables that it lacks; create the file if it is missing.

    Raises IntegrityError for a file that is corrupt or no database, InvalidConfig for a file of a newer schema version, and
    SQLite's own errors otherwise, such as for a full disk.
    """
    if path.exists() and not path.is_file():
        raise IntegrityError("it is not a regular file")
    _make_private(path)
    connection = _new_engine(path).connect()
    try:
        _prepare(connection, path, tables)
    except BaseException as error:
        connection.close()
        connection.engine.dispose()
        if is_corrupt(error):
            raise IntegrityError(str(getattr(error, "orig", error))) from error
        raise
    return connection


def _make_private(path: Path) -> None:
    """Restrict the database files to this user (mode 0600), since they contain environment variables of pods.

    SQLite gives new journal files the same mode. A failure is ignored: SQLite reports it when it opens the file. Call
    this only while the file is not open in this process: closing a second descriptor would release SQLite's locks.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + suffix).chmod(0o600)


def _prepare(connection: Connection, path: Path, tables: Sequence[MetaData]) -> None:
    raw = driver(connection)
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA foreign_keys=ON")
    raw.execute("PRAGMA cache_size=-1024")
    check = raw.execute("PRAGMA quick_check(1)").fetchone()
    if check is None or check[0] != "ok":
        raise IntegrityError(str(check[0] if check else "the check gave no answer"))
    version = int(raw.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise InvalidConfig(
            obj=str(path),
            field="schema version",
            problem=f"{version} is newer than this program's {SCHEMA_VERSION}",
            fix="run the newer kubeletx again, or give another --root-dir",
        )
    with connection.begin():
        for metadata in tables:
            metadata.create_all(connection)
            _check_columns(raw, metadata)
        if version == 0:
            connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")


def _check_columns(raw: sqlite3.Connection, metadata: MetaData) -> None:
    """Raise IntegrityError if a table lacks a column that this code needs; another program must have made that table."""
    for table in metadata.tables.values():
        have = {row[1] for row in raw.execute(f"PRAGMA table_info('{table.name}')")}
        for column in table.columns:
            if column.name not in have:
                raise IntegrityError(f"table {table.name} has no column {column.name}")


def set_aside(path: Path) -> Path:
    """Rename an unusable database file and its journal files to ``<name>.corrupt-<time>``; returns the new path.

    Raises Unavailable if the file cannot be renamed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    try:
        path.rename(target)
        for suffix in ("-wal", "-shm"):
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(target.with_name(target.name + suffix))
    except OSError as error:
        raise Unavailable(
            f"state database {path} is corrupt and cannot be set aside: {error.strerror}; "
            "make its directory writable or move the file away"
        ) from error
    return target


def synchronise(connection: Connection, durable: bool) -> None:
    """Set whether later commits wait until the data are on disk. Call it outside a transaction."""
    driver(connection).execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")


def driver(connection: Connection) -> sqlite3.Connection:
    """Return the connection of Python's own module, within the same transaction."""
    driver_connection = connection.connection.driver_connection
    assert isinstance(driver_connection, sqlite3.Connection)
    return driver_connection


def _new_engine(path: Path) -> Engine:
    def dial() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=2.0, isolation_level=None, cached_statements=256)

    engine = create_engine("sqlite://", creator=dial, poolclass=StaticPool)

    # The driver's own transaction handling is off: it would interfere with savepoints and PRAGMAs.
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver(connection).execute("BEGIN")

    return engine


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
