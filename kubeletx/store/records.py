"""`StoreRecords`: the records of plugins in the node's own database.

One table contains the records of all kinds. It is created at its first use. If it lacks a column, it is renamed and
kept, and a new table is created. Damage in the table makes only reads and writes of records fail. All writes run on
the store's one thread.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable
from typing import TypeVar

import structlog
from sqlalchemy.engine import Connection

from kubeletx.linux.records import SqliteRecords

from .engine import driver, is_of_the_file, translate
from .store import Store

log = structlog.get_logger(__name__)
T = TypeVar("T")

_COLUMNS = {"kind", "name", "version", "json"}
_TABLE = """CREATE TABLE records (
    kind VARCHAR NOT NULL, name VARCHAR NOT NULL, version VARCHAR NOT NULL, json VARCHAR NOT NULL, PRIMARY KEY (kind, name)
)"""


class StoreRecords(SqliteRecords):
    """Gives access to the records of every kind in the node's database."""

    def __init__(self, store: Store) -> None:
        """`store`: the state database; only its table of records is used."""
        super().__init__(_StoreFile(store))


class _StoreFile:
    """The table of records in the state database. Implements `RecordsFile`."""

    json_column = "json"
    shows_broken = False

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._store.read(lambda connection: _with_table(connection, work))
        except sqlite3.Error as error:
            raise translate(error, self._store.path) from error

    async def write(
        self, work: Callable[[sqlite3.Connection], T], probe: Callable[[sqlite3.Connection], object]
    ) -> T:
        """Read the pages that the write will change, then write.

        A damaged page makes the read fail, which affects only this caller. Without the read, the write itself would
        fail, and SQLite would roll back the whole transaction, with the writes of other callers.
        """

        def look(connection: sqlite3.Connection) -> None:
            probe(connection)  # the page of the row
            connection.execute("SELECT max(rowid) FROM records").fetchone()  # the page of a new row

        await self.read(look)
        try:
            return await self._store.write(lambda connection: _with_table(connection, work))
        except sqlite3.Error as error:
            raise translate(error, self._store.path) from error

    async def changes(self) -> object:
        return None  # this process alone writes the file

    async def wait(self, event: asyncio.Event) -> None:
        await event.wait()


def _with_table(connection: Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work`; if it fails since the table is missing or lacks a column, create the table and run `work` again."""
    raw = driver(connection)
    try:
        return work(raw)
    except sqlite3.OperationalError as error:
        if is_of_the_file(error):
            raise
        _make_table(raw)
        return work(raw)


def _make_table(connection: sqlite3.Connection) -> None:
    have = {row[1] for row in connection.execute("PRAGMA table_info('records')")}
    if have >= _COLUMNS:
        return  # the statement itself is wrong
    if have:
        aside = f"records_unusable_{secrets.token_hex(4)}"
        connection.execute(f'ALTER TABLE records RENAME TO "{aside}"')
        log.warning("Set a table aside that holds no records", table="records", aside=aside)
    connection.execute(_TABLE)
