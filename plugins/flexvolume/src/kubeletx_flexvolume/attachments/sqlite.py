"""`SqliteStore`: records in one SQLite file, for all storage agents of one machine.

The file is used from one thread of each process. Watches look twice a second at the counter of SQLite that other
connections' writes change (PRAGMA data_version).

The file is in WAL mode with full synchronization: a committed write survives a crash of the machine. Writers take the
write lock at the begin of their transaction, so that a read and a write in one function are atomic among all processes.
WAL needs shared memory: the file must be on a local file system. Source: sqlite.org, wal.html.

The storage agent sets a damaged file aside, as ``NAME.damaged``, and begins a new one, in which the agents of the machine
enter their volumes again: each notices the new file at its next call. Commands only report the damage.

The file has mode 0600, in a directory that only its owner can write. SQLite gives its other files the same mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import structlog

from kubeletx.api import (
    BoundedThreadPool,
    Clock,
    InvalidConfig,
    KubeletxError,
    TimedOut,
    Unavailable,
    WhenFull,
    sleep_or,
    within,
)
from kubeletx.linux.locks import lock_descriptor
from kubeletx.linux.records import SqliteRecords

T = TypeVar("T")

log = structlog.get_logger(__name__)

BUSY_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
CALL_SECONDS: Final = 15.0
"""Deadline of one read or write, above `BUSY_SECONDS`."""
_FORMAT: Final = 1
_DAMAGED: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS records (
    kind TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL);
"""


class SqliteStore(SqliteRecords):
    """Records of every kind in the file, and the connection to it, on a thread of its own. Implements `RecordsFile`."""

    json_column = "value"
    shows_broken = True

    def __init__(
        self, path: Path, clock: Clock, *, sets_aside: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        """`path`: made at the first use, with its directory. `sets_aside`: a damaged file is replaced by a new one.

        `clock`: for the intervals of watches. `busy_seconds`: wait for the lock of another process.
        """
        super().__init__(self)
        self.path = path
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._sets_aside = sets_aside
        self._inode = 0
        """Inode of the file that is open, or was tried last."""
        self._pool = BoundedThreadPool("records", threads=1, when_full=WhenFull.WAIT, owner="store of")
        self._connection: sqlite3.Connection | None = None

    async def identity(self) -> str:
        """Return the random ID that the file got when it was made."""
        (found,) = await self.read(lambda one: one.execute("SELECT id FROM store").fetchone())
        return str(found)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            async with within(CALL_SECONDS, f"{self.path} did not answer"):
                return await self._pool.run(self._read, work)
        except TimedOut as error:
            raise Unavailable(error.message) from error

    async def write(
        self, work: Callable[[sqlite3.Connection], T], probe: Callable[[sqlite3.Connection], object]
    ) -> T:
        async with within(CALL_SECONDS, f"{self.path} did not answer"):
            return await self._pool.run(self._write, work)

    async def changes(self) -> object:
        """Return the counter, and the file to which it belongs."""
        return await self.read(lambda one: (self._inode, *one.execute("PRAGMA data_version").fetchone()))

    async def wait(self, event: asyncio.Event) -> None:
        await sleep_or(self._clock, POLL_SECONDS, event)

    async def close(self) -> None:
        """Close the connection. A call that hangs is left to its thread."""
        try:
            async with within(BUSY_SECONDS, f"{self.path} was not closed"):
                await self._pool.run(self._close)
        except TimedOut:
            pass  # the thread is a daemon; the kernel closes the file with the process
        finally:
            self._pool.close()

    # --- on the thread ---

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._with_new_file(lambda: work(self._open()))

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._with_new_file(lambda: self._written(work))

    def _with_new_file(self, call: Callable[[], T]) -> T:
        """Return the result of a call; if the file is damaged, set it aside and repeat the call once."""
        try:
            try:
                return call()
            except sqlite3.DatabaseError as error:
                if not self._sets_aside or getattr(error, "sqlite_errorcode", None) not in _DAMAGED:
                    raise
                self._set_aside(error)
                return call()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _written(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
        except BaseException:
            _undo(connection)
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _undo(connection)
            raise TimedOut(f"{self.path}: it is unknown whether a write was done: {error}") from error
        return result

    def _set_aside(self, error: sqlite3.Error) -> None:
        """Rename the file, unless another agent has done so: then the path has another inode."""
        self._close()
        aside = self.path.with_name(f"{self.path.name}.damaged")
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lock_descriptor(directory, self.path.parent, waits=True)
            if _inode(self.path) != self._inode:
                return
            self.path.replace(aside)
            for ending in ("-wal", "-shm"):  # after a crash here, SQLite removes them beside its new file
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + ending).replace(f"{aside}{ending}")
            os.fsync(directory)
        except OSError as problem:
            raise self._bad(
                f"is damaged ({error}), and cannot be renamed: {problem.strerror}", "rename it"
            ) from problem
        finally:
            os.close(directory)
        log.error("Set damaged records aside", path=str(aside), err=str(error))

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _inode(self.path) != self._inode:
            self._close()  # another agent has set it aside
        if self._connection is None:
            try:
                self._connection = self._opened()
            except OSError as error:
                raise Unavailable(f"{self.path} cannot be opened: {error.strerror or error}") from error
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        _make_private(self.path)
        self._inode = _inode(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > _FORMAT:
            raise self._bad(f"has format {found}, and this version knows {_FORMAT}", "use a newer version")
        if found == _FORMAT:
            return
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        if connection.execute("SELECT id FROM store").fetchone() is None:
            connection.execute("INSERT INTO store VALUES (?)", (secrets.token_hex(16),))
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _translated(self, error: sqlite3.Error) -> KubeletxError:
        if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
            fix = "start the storage agent, which sets it aside and enters its volumes again"
            return self._bad(f"is damaged ({error})", fix)
        return Unavailable(f"{self.path}: {error}")

    def _bad(self, problem: str, fix: str) -> InvalidConfig:
        return InvalidConfig(obj="records", field=str(self.path), problem=problem, fix=fix)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.interrupt()  # the next BEGIN fails, and its caller gets the reason


def _make_private(path: Path) -> None:
    """Make the file with mode 0600, and its directory with 0700. Raises InvalidConfig if others can write there.

    A file that exists is never opened here: closing it would drop the locks of this process' other connections.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidConfig(
            obj="records",
            field=str(path),
            problem=f"other users can write to {path.parent} (mode {stat.S_IMODE(found.st_mode):o})",
            fix="use a directory of root with mode 0700",
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            raise InvalidConfig(
                obj="records", field=str(path), problem="is not a regular file", fix="name another path"
            ) from None
        if stat.S_IMODE(mode) != 0o600:
            path.chmod(0o600)
