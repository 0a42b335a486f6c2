"""`SqliteRecords`: `kubeletx.api.Records` in one SQLite file, for all storage agents of one machine.

Versions are random, so that a version from a lost file matches no record of the next one. A watch looks at the counter
of SQLite that other connections' writes change (PRAGMA data_version), twice a second, and compares all records of its
kind if there was a change. Writes of this process wake its watches at once.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog

from kubeletx.api import (
    AlreadyExists,
    Clock,
    Conflict,
    NotFound,
    Record,
    RecordGone,
    RecordPut,
    RecordsSynced,
    sleep_or,
)
from kubeletx.api.records import PAGE_RECORDS, RecordEvent, RecordPage, check_record_name, record_json

from .sqlite_file import SqliteFile

T = TypeVar("T")

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 0.5
_VERSION_BYTES: Final = 12
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class SqliteStore:
    """Gives access to the records of every kind in one file. Its method `of` is a `kubeletx.api.RecordKinds`."""

    def __init__(self, path: Path, clock: Clock, *, sets_aside: bool = False) -> None:
        """`path`, `sets_aside`: see `SqliteFile`. `clock`: for the intervals of watches."""
        self._file = SqliteFile(path, sets_aside=sets_aside)
        self._clock = clock
        self._kinds: dict[str, SqliteRecords] = {}

    def of(self, kind: str) -> SqliteRecords:
        """Return the records of one kind. Raises InvalidConfig if the kind is no DNS subdomain."""
        check_record_name(kind, "kind of records")
        if kind not in self._kinds:
            self._kinds[kind] = SqliteRecords(self._file, kind, self._clock)
        return self._kinds[kind]

    async def identity(self) -> str:
        """Return the random ID that the file got when it was made."""
        (found,) = await self._file.read(lambda one: one.execute("SELECT id FROM store").fetchone())
        return str(found)

    async def close(self) -> None:
        """Close the file."""
        await self._file.close()


class SqliteRecords:
    """Records of one kind. Implements `kubeletx.api.Records`."""

    def __init__(self, file: SqliteFile, kind: str, clock: Clock) -> None:
        self._file = file
        self._kind = kind
        self._clock = clock
        self._watches: set[asyncio.Event] = set()

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        text, version = record_json(name, value), _new_version()

        def work(connection: sqlite3.Connection) -> None:
            try:
                connection.execute(
                    "INSERT INTO records VALUES (?, ?, ?, ?)", (self._kind, name, version, text.decode())
                )
            except sqlite3.IntegrityError as error:
                raise AlreadyExists(f"{self._words(name)} already exists") from error

        await self._write(work)
        return Record(name=name, version=version, value=_DECODER.decode(text))

    async def get(self, name: str) -> Record:
        check_record_name(name)
        return await self._file.read(lambda connection: self._get(connection, name))

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        def work(connection: sqlite3.Connection) -> RecordPage:
            rows = connection.execute(
                "SELECT name, version, value FROM records WHERE kind = ? AND name > ? ORDER BY name LIMIT ?",
                (self._kind, token, limit),
            ).fetchall()
            records = tuple(_record(*row) for row in rows)
            return RecordPage(records=records, next_token=records[-1].name if len(rows) == limit else "")

        return await self._file.read(work)

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        text, version = record_json(name, value), _new_version()
        wanted = Record(name=name, version=version, value=_DECODER.decode(text))

        def work(connection: sqlite3.Connection) -> Record:
            before = self._expected(connection, name, expected_version)
            if before.value == wanted.value:
                return before
            connection.execute(
                "UPDATE records SET version = ?, value = ? WHERE kind = ? AND name = ?",
                (version, text.decode(), self._kind, name),
            )
            return wanted

        return await self._write(work)

    async def delete(self, name: str, *, expected_version: str) -> None:
        check_record_name(name)

        def work(connection: sqlite3.Connection) -> None:
            self._expected(connection, name, expected_version)
            connection.execute("DELETE FROM records WHERE kind = ? AND name = ?", (self._kind, name))

        await self._write(work)

    async def watch(self) -> AsyncGenerator[RecordEvent, None]:
        news, seen = asyncio.Event(), dict[str, str]()
        self._watches.add(news)
        try:
            counter, events = await self._file.read(lambda connection: self._news(connection, seen))
            for event in events:
                yield event
            yield RecordsSynced()
            while True:
                await sleep_or(self._clock, POLL_SECONDS, news)
                is_own = news.is_set()
                news.clear()
                if not is_own and await self._file.read(_counter) == counter:
                    continue
                counter, events = await self._file.read(lambda connection: self._news(connection, seen))
                for event in events:
                    yield event
        finally:
            self._watches.discard(news)

    # --- inside ---

    def _words(self, name: str) -> str:
        return f"record {self._kind}/{name}"

    def _get(self, connection: sqlite3.Connection, name: str) -> Record:
        row = connection.execute(
            "SELECT name, version, value FROM records WHERE kind = ? AND name = ?", (self._kind, name)
        ).fetchone()
        if row is None:
            raise NotFound(f"{self._words(name)} does not exist")
        return _record(*row)

    def _expected(self, connection: sqlite3.Connection, name: str, version: str) -> Record:
        found = self._get(connection, name)
        if found.version != version:
            raise Conflict(f"{self._words(name)} was changed meanwhile: read it again")
        return found

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._file.write(work)
        finally:
            for news in self._watches:
                news.set()

    def _news(self, connection: sqlite3.Connection, seen: dict[str, str]) -> tuple[int, list[RecordEvent]]:
        """Return SQLite's counter and the events since `seen`, which is updated. The counter is read first."""
        counter = _counter(connection)
        return counter, list(self._differences(connection, seen))

    def _differences(self, connection: sqlite3.Connection, seen: dict[str, str]) -> Iterator[RecordEvent]:
        rows = connection.execute(
            "SELECT name, version, value FROM records WHERE kind = ? ORDER BY name", (self._kind,)
        ).fetchall()
        for name in seen.keys() - {row[0] for row in rows}:
            del seen[name]
            yield RecordGone(name)
        for row in rows:
            if seen.get(row[0]) != row[1]:
                seen[row[0]] = row[1]
                yield RecordPut(_record(*row))


def _counter(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA data_version").fetchone()
    return int(found)


def _record(name: str, version: str, text: str) -> Record:
    """Return the record of a row. A row that cannot be decoded is an empty object, which no reader of records accepts."""
    try:
        return Record(name=str(name), version=str(version), value=_DECODER.decode(text))
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        log.warning("Failed to decode a record", record=str(name), err=str(error))
        return Record(name=str(name), version=str(version), value={})


def _new_version() -> str:
    return secrets.token_hex(_VERSION_BYTES)
