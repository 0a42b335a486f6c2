"""`SqliteRecords`: versioned JSON records in a table of an SQLite file; implements `kubeletx.api.Records`.

How the file is opened, shared and repaired is the matter of a `RecordsFile`: the node's state database, and the file that
the storage agents of a machine share.

Versions are random, so that a version that was read from a lost file matches no record of the next one. Each write of
this process notifies the watches of the record's kind of its name, and the watches read the record again; the order of
the notifications therefore does not matter. If `RecordsFile.changes` shows that another process has written, they
compare all records.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from kubeletx.api.errors import AlreadyExists, Conflict, NotFound
from kubeletx.api.records import (
    PAGE_RECORDS,
    Record,
    RecordEvent,
    RecordGone,
    RecordPage,
    RecordPut,
    RecordsSynced,
    check_record_name,
    record_json,
)

log = structlog.get_logger(__name__)

_Value = TypeVar("_Value")
_VERSION_BYTES: Final = 12
_VARIABLES: Final = 500
"""Maximum number of names in one query; SQLite accepts 999 or more."""
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class RecordsFile(Protocol):
    """An SQLite file with a table ``records``: kind, name, version, and a column with the JSON text.

    `json_column`: name of that column. `shows_broken`: a row that cannot be decoded is an empty object, so that its
    reader names it; otherwise it counts as missing.
    """

    json_column: str
    shows_broken: bool

    async def read(self, work: Callable[[sqlite3.Connection], _Value]) -> _Value:
        """Return the result of `work`, which only reads. Raises Unavailable."""
        ...

    async def write(
        self, work: Callable[[sqlite3.Connection], _Value], probe: Callable[[sqlite3.Connection], object]
    ) -> _Value:
        """Run `work` in a transaction, which an exception undoes, and return its result once it is on disk.

        `probe`: reads the pages that `work` will change; for a file whose transactions have several writers. Raises
        Unavailable, and TimedOut if it is unknown whether the write was done.
        """
        ...

    async def changes(self) -> object:
        """Return a value that differs after a write of another process."""
        ...

    async def wait(self, event: asyncio.Event) -> None:
        """Wait until the event is set, or until it is time to look for writes of other processes."""
        ...


class SqliteRecords:
    """Gives access to the records of every kind in one file. Its method `of` is a `kubeletx.api.RecordKinds`."""

    def __init__(self, file: RecordsFile) -> None:
        self._file = file
        self._kinds: dict[str, _KindRecords] = {}

    def of(self, kind: str) -> _KindRecords:
        """Return the object that reads and writes the records of one kind.

        Raises InvalidConfig if the kind is not a DNS subdomain.
        """
        check_record_name(kind, "kind of records")
        return self._kinds.setdefault(kind, _KindRecords(self._file, kind))


class _Notices:
    """Names of the changed records that one watch must read again."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.came = asyncio.Event()

    def add(self, name: str) -> None:
        self.names.add(name)
        self.came.set()

    def take(self) -> list[str]:
        self.came.clear()
        names, self.names = self.names, set()
        return sorted(names)


class _KindRecords:
    """Reads, writes and watches the records of one kind. Implements `kubeletx.api.Records`."""

    def __init__(self, file: RecordsFile, kind: str) -> None:
        self._file = file
        self._kind = kind
        self._select = f"SELECT name, version, {file.json_column} FROM records WHERE kind = ?"
        self._watches: set[_Notices] = set()
        self._writes: set[asyncio.Future[Any]] = set()

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        after, text = _new(name, value)

        def work(connection: sqlite3.Connection) -> None:
            if self._find(connection, name) is not None:
                raise AlreadyExists(f"{self._words(name)} already exists")
            # Replaces a row that cannot be decoded.
            connection.execute(
                f"INSERT OR REPLACE INTO records (kind, name, version, {self._file.json_column}) VALUES (?, ?, ?, ?)",
                (self._kind, name, after.version, text),
            )

        await self._write(name, work)
        return after

    async def get(self, name: str) -> Record:
        check_record_name(name)
        record = await self._file.read(lambda connection: self._find(connection, name))
        if record is None:
            raise NotFound(f"{self._words(name)} does not exist")
        return record

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        def work(connection: sqlite3.Connection) -> RecordPage:
            query = f"{self._select} AND name > ? ORDER BY name LIMIT ?"
            rows = connection.execute(query, (self._kind, token, limit)).fetchall()
            next_token = str(rows[-1][0]) if len(rows) == limit else ""
            return RecordPage(records=tuple(self._decoded(rows)), next_token=next_token)

        return await self._file.read(work)

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        after, text = _new(name, value)

        def work(connection: sqlite3.Connection) -> Record:
            before = self._expected(connection, name, expected_version)
            if before.value == after.value:
                return before
            connection.execute(
                f"UPDATE records SET version = ?, {self._file.json_column} = ? WHERE kind = ? AND name = ?",
                (after.version, text, self._kind, name),
            )
            return after

        return await self._write(name, work)

    async def delete(self, name: str, *, expected_version: str) -> None:
        check_record_name(name)

        def work(connection: sqlite3.Connection) -> None:
            self._expected(connection, name, expected_version)
            connection.execute("DELETE FROM records WHERE kind = ? AND name = ?", (self._kind, name))

        await self._write(name, work)

    async def watch(self) -> AsyncGenerator[RecordEvent, None]:
        notices, seen = _Notices(), dict[str, str]()
        self._watches.add(notices)
        try:
            changes = await self._file.changes()  # before the list, so that later writes show
            for event in await self._differences(seen):
                yield event
            yield RecordsSynced()
            while True:
                await self._file.wait(notices.came)
                names = notices.take()
                records = {record.name: record for record in await self._read_names(names)}
                for name in names:
                    for event in _news(name, records.get(name), seen):
                        yield event
                if (now := await self._file.changes()) != changes:
                    changes = now
                    for event in await self._differences(seen):
                        yield event
        finally:
            self._watches.discard(notices)

    # --- inside ---

    def _words(self, name: str) -> str:
        return f"record {self._kind}/{name}"

    def _find(self, connection: sqlite3.Connection, name: str) -> Record | None:
        rows = connection.execute(f"{self._select} AND name = ?", (self._kind, name)).fetchall()
        return next(iter(self._decoded(rows)), None)

    def _expected(self, connection: sqlite3.Connection, name: str, version: str) -> Record:
        record = self._find(connection, name)
        if record is None:
            raise NotFound(f"{self._words(name)} does not exist")
        if record.version != version:
            raise Conflict(f"{self._words(name)} was changed meanwhile: read it again")
        return record

    def _decoded(self, rows: Iterable[tuple[Any, ...]]) -> Iterable[Record]:
        for name, version, text in rows:
            try:
                value = _DECODER.decode(text)
            except (msgspec.DecodeError, UnicodeError, TypeError) as error:
                log.warning("Failed to decode a record", record=self._words(str(name)), err=str(error))
                if not self._file.shows_broken:
                    continue
                value = {}
            yield Record(name=str(name), version=str(version), value=value)

    async def _differences(self, seen: dict[str, str]) -> list[RecordEvent]:
        """Return the events from the versions in `seen`, which is updated, to the present records."""
        events: list[RecordEvent] = []
        gone, token, is_first = set(seen), "", True
        while token or is_first:
            page = await self.list_page(token=token)
            for record in page.records:
                gone.discard(record.name)
                events += _news(record.name, record, seen)
            token, is_first = page.next_token, False
        return [*(event for name in sorted(gone) for event in _news(name, None, seen)), *events]

    async def _read_names(self, names: list[str]) -> list[Record]:
        records: list[Record] = []
        for start in range(0, len(names), _VARIABLES):
            part = names[start : start + _VARIABLES]
            query = f"{self._select} AND name IN ({', '.join('?' * len(part))})"
            records += await self._file.read(
                lambda connection, query=query, part=part: list(  # type: ignore[misc]
                    self._decoded(connection.execute(query, (self._kind, *part)).fetchall())
                )
            )
        return records

    async def _write(self, name: str, work: Callable[[sqlite3.Connection], _Value]) -> _Value:
        """Run the write `work`, then notify the watches that record `name` changed.

        Both happen even if the caller is cancelled.
        """
        writing = self._file.write(work, lambda connection: self._find(connection, name))
        task = asyncio.create_task(writing, name=f"write {self._words(name)}")
        self._writes.add(task)

        def end(done: asyncio.Future[_Value]) -> None:
            self._writes.discard(done)
            if not done.cancelled():
                done.exception()  # otherwise asyncio logs the exception if the caller was cancelled
            for notices in self._watches:
                notices.add(name)

        task.add_done_callback(end)
        return await asyncio.shield(task)


def _new(name: str, value: Mapping[str, Any]) -> tuple[Record, str]:
    """Return a record with a new version, and its JSON text. Raises InvalidConfig."""
    text = record_json(name, value)
    version = secrets.token_hex(_VERSION_BYTES)
    return Record(name=name, version=version, value=_DECODER.decode(text)), text.decode()


def _news(name: str, record: Record | None, seen: dict[str, str]) -> Iterable[RecordEvent]:
    if record is not None and seen.get(name) != record.version:
        seen[name] = record.version
        yield RecordPut(record)
    elif record is None and seen.pop(name, None) is not None:
        yield RecordGone(name)
