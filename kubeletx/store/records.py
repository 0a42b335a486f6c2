"""`StoreRecords`: versioned JSON records in the node's own database; implements `kubeletx.api.Records`.

One table contains the records of all kinds. It is created at its first use. If it lacks a column, it is renamed and
kept, and a new table is created. Damage in the table makes only reads and writes of records fail. An invalid row
counts as missing: lists leave it out with a warning, and a new record of its name replaces it.

Versions are random, so that a version that was read from a lost database matches no record of the next one. All
writes run on the store's one thread, so a read and a write within one function passed to it are atomic. Watches work
within this process: each write notifies the watches of the record's kind of its name, and the watches read the record
again. The order of the notifications therefore does not matter.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog
from sqlalchemy import (
    Column,
    MetaData,
    Select,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import Connection, RowMapping
from sqlalchemy.exc import DBAPIError, OperationalError

from kubeletx.api import AlreadyExists, Conflict, NotFound
from kubeletx.api.records import (
    PAGE_RECORDS,
    Record,
    RecordEvent,
    RecordGone,
    RecordPage,
    RecordPut,
    Records,
    RecordsSynced,
    check_record_name,
    record_json,
)

from .errors import is_of_the_file, translate
from .rows import read_rows
from .store import Store

log = structlog.get_logger(__name__)
T = TypeVar("T")

METADATA = MetaData()
RECORDS = Table(
    "records",
    METADATA,
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("version", String, nullable=False),
    Column("json", String, nullable=False),
)
_VERSION_BYTES = 12
_VARIABLES = 500
"""Maximum number of names in one query; SQLite accepts 999 or more."""


class StoreRecords:
    """Gives access to the records of every kind in the node's database. Its method `of` is a `RecordKinds`."""

    def __init__(self, store: Store) -> None:
        """`store`: the state database; only its table of records is used."""
        self._store = store
        self._kinds: dict[str, _KindRecords] = {}

    def of(self, kind: str) -> Records:
        """Return the object that reads and writes the records of one kind.

        Raises InvalidConfig if the kind is not a DNS subdomain.
        """
        check_record_name(kind, "kind of records")
        return self._kinds.setdefault(kind, _KindRecords(self._store, kind))


class _Notices:
    """Names of the changed records that one watch must read again."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.came = asyncio.Event()

    def add(self, name: str) -> None:
        self.names.add(name)
        self.came.set()

    async def take(self) -> list[str]:
        await self.came.wait()
        self.came.clear()
        names, self.names = self.names, set()
        return sorted(names)


class _KindRecords:
    """Reads, writes and watches the records of one kind. Implements `kubeletx.api.Records`."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._watches: set[_Notices] = set()
        self._writes: set[asyncio.Future[Any]] = set()

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        encoded = record_json(name, value).decode()
        version = secrets.token_hex(_VERSION_BYTES)

        def work(connection: Connection) -> None:
            if self._find(connection, name) is not None:
                raise AlreadyExists(f"{self._words(name)} already exists")
            connection.execute(delete(RECORDS).where(*self._is(name)))  # an invalid row, if there is one
            connection.execute(
                insert(RECORDS).values(kind=self._kind, name=name, version=version, json=encoded)
            )

        await self._write(name, work)
        return _record(name, version, encoded)

    async def get(self, name: str) -> Record:
        check_record_name(name)
        found = await self._read(lambda connection: self._find(connection, name))
        if found is None:
            raise NotFound(f"{self._words(name)} does not exist")
        return found

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        query = (
            select(RECORDS)
            .where(RECORDS.c.kind == self._kind, RECORDS.c.name > token)
            .order_by(RECORDS.c.name)
            .limit(limit)
        )

        def work(connection: Connection) -> RecordPage:
            rows = list(connection.execute(query.with_only_columns(RECORDS.c.name)).scalars())
            records = tuple(read_rows(connection, query, _of_row))
            return RecordPage(records=records, next_token=str(rows[-1]) if len(rows) == limit else "")

        return await self._read(work)

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        encoded = record_json(name, value).decode()
        version = secrets.token_hex(_VERSION_BYTES)

        def work(connection: Connection) -> Record:
            before = self._expected(connection, name, expected_version)
            after = _record(name, version, encoded)
            if before.value == after.value:
                return before
            changes = update(RECORDS).where(*self._is(name)).values(version=version, json=encoded)
            connection.execute(changes)
            return after

        return await self._write(name, work)

    async def delete(self, name: str, *, expected_version: str) -> None:
        check_record_name(name)

        def work(connection: Connection) -> None:
            self._expected(connection, name, expected_version)
            connection.execute(delete(RECORDS).where(*self._is(name)))

        await self._write(name, work)

    async def watch(self) -> AsyncGenerator[RecordEvent, None]:
        notices, seen = _Notices(), dict[str, str]()
        self._watches.add(notices)
        try:
            token, is_first = "", True
            while token or is_first:
                page = await self.list_page(token=token)
                for record in page.records:
                    seen[record.name] = record.version
                    yield RecordPut(record)
                token, is_first = page.next_token, False
            yield RecordsSynced()
            while True:
                names = await notices.take()
                found = await self._read_names(names)
                for name in names:
                    for event in _news(name, found.get(name), seen):
                        yield event
        finally:
            self._watches.discard(notices)

    # --- inside ---

    def _is(self, name: str) -> tuple[Any, Any]:
        return RECORDS.c.kind == self._kind, RECORDS.c.name == name

    def _words(self, name: str) -> str:
        return f"record {self._kind}/{name}"

    def _find(self, connection: Connection, name: str) -> Record | None:
        found = read_rows(connection, select(RECORDS).where(*self._is(name)), _of_row)
        return found[0] if found else None

    def _expected(self, connection: Connection, name: str, version: str) -> Record:
        found = self._find(connection, name)
        if found is None:
            raise NotFound(f"{self._words(name)} does not exist")
        if found.version != version:
            raise Conflict(f"{self._words(name)} was changed meanwhile: read it again")
        return found

    async def _read_names(self, names: list[str]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for start in range(0, len(names), _VARIABLES):
            part = names[start : start + _VARIABLES]
            query = select(RECORDS).where(RECORDS.c.kind == self._kind, RECORDS.c.name.in_(part))
            found |= {one.name: one for one in await self._read(partial(_rows, query=query))}
        return found

    async def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._store.read(lambda connection: _with_table(connection, work))
        except DBAPIError as error:
            raise translate(error, self._store.path) from error

    async def _write(self, name: str, work: Callable[[Connection], T]) -> T:
        """Run the write `work`, then notify the watches that record `name` changed.

        Both happen even if the caller is cancelled.
        """
        task = asyncio.create_task(self._probe_and_write(name, work), name=f"write {self._words(name)}")
        self._writes.add(task)

        def end(done: asyncio.Future[T]) -> None:
            self._writes.discard(done)
            if not done.cancelled():
                done.exception()  # otherwise asyncio logs the exception if the caller was cancelled
            for notices in self._watches:
                notices.add(name)

        task.add_done_callback(end)
        try:
            return await asyncio.shield(task)
        except DBAPIError as error:
            raise translate(error, self._store.path) from error

    async def _probe_and_write(self, name: str, work: Callable[[Connection], T]) -> T:
        """Read the database pages that the write will change, then write.

        A damaged page makes the read fail, which affects only this caller. Without the read, the write itself would
        fail, and SQLite would roll back the whole transaction, with the writes of other callers.
        """

        def probe(connection: Connection) -> None:
            self._find(connection, name)  # the page of the row
            newest = select(func.max(text("rowid"))).select_from(RECORDS)  # the page of a new row
            connection.execute(newest).scalar()

        await self._read(probe)
        return await self._store.write(lambda connection: _with_table(connection, work))


def _rows(connection: Connection, query: Select[Any]) -> list[Record]:
    return read_rows(connection, query, _of_row)


def _news(name: str, record: Record | None, seen: dict[str, str]) -> Iterable[RecordEvent]:
    if record is not None and seen.get(name) != record.version:
        seen[name] = record.version
        yield RecordPut(record)
    elif record is None and seen.pop(name, None) is not None:
        yield RecordGone(name)


def _record(name: str, version: str, encoded: str) -> Record:
    return Record(name=name, version=version, value=msgspec.json.decode(encoded, type=dict[str, Any]))


def _of_row(row: RowMapping) -> Record:
    """Convert a database row to a Record. Raises ValueError or TypeError if the row is invalid."""
    if not all(isinstance(row[column], str) for column in ("name", "version", "json")):
        raise TypeError(f"columns of record {row['name']!r} are no texts")
    return _record(row["name"], row["version"], row["json"])


def _with_table(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run `work`; if it fails since the table is missing or lacks a column, create the table and run `work` again."""
    try:
        return work(connection)
    except OperationalError as error:
        if is_of_the_file(error):
            raise
        _make_table(connection)
        return work(connection)


def _make_table(connection: Connection) -> None:
    there = inspect(connection)
    if there.has_table(RECORDS.name):
        have = {one["name"] for one in there.get_columns(RECORDS.name)}
        if have >= {column.name for column in RECORDS.columns}:
            return  # the statement itself is wrong
        aside = f"{RECORDS.name}_unusable_{secrets.token_hex(4)}"
        connection.execute(text(f'ALTER TABLE "{RECORDS.name}" RENAME TO "{aside}"'))
        log.warning("Set a table aside that holds no records", table=RECORDS.name, aside=aside)
    METADATA.create_all(connection)
