"""Rows of sessions and instances in the state database; `BatchedRows` also writes the rows of their usage.

Changes are collected and written in one transaction as soon as the one before is on disk, so that a wake never waits
for the disk. A crash loses the last milliseconds; the instance then reports a session without a row, and is asked to
close it (`Instance.received`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import structlog
from sqlalchemy import Boolean, Column, LargeBinary, MetaData, String, Table, bindparam, delete, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import Clock, PodUid, Unavailable
from kubeletx.store import Store, checked, read_rows, upsert

from .model import Session

log = structlog.get_logger(__name__)
T = TypeVar("T")

RETRY_SECONDS = 5.0

SESSION_TABLES = MetaData()
_sessions = Table(
    "sessions",
    SESSION_TABLES,
    Column("id", String, primary_key=True),
    Column("pod_id", String, nullable=False),
    Column("pod_uid", String, nullable=False),
    Column("state", String, nullable=False),
    Column("session", LargeBinary, nullable=False),
)
"""`session` has the whole value as JSON; the other columns repeat parts of it for queries."""
_instances = Table(
    "session_instances",
    SESSION_TABLES,
    Column("uid", String, primary_key=True),
    Column("pod_id", String, nullable=False),
    Column("has_sessions", Boolean, nullable=False),
    Column("was_connected", Boolean, nullable=False),
    Column("request", String, nullable=False),
    Column("end_reason", String, nullable=False),
    Column("end_message", String, nullable=False),
)
_unconfirmed = Table(
    "session_unconfirmed",
    SESSION_TABLES,
    Column("key", String, primary_key=True),
    Column("pod_uid", String, nullable=False),
    Column("session_id", String, nullable=False),
)
"""`Instance.unconfirmed`. A table of its own, since sessions are deleted earlier and older databases lack a column."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Session)


class InstanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """Stored facts of an instance. `was_connected`: its application has connected once.

    `has_sessions`: the pod has the annotation for sessions. `request`: power state that was requested without a
    session, as value of `Power`; empty: none. `end_reason`, `end_message`: set when the room has ended the pod.
    """

    uid: PodUid
    pod_id: str
    has_sessions: bool
    was_connected: bool = False
    request: str = ""
    end_reason: str = ""
    end_message: str = ""


class BatchedRows:
    """Rows of some tables, written in batches; see the module's docstring. Each table has one column as primary key."""

    def __init__(self, store: Store, clock: Clock, tables: Iterable[Table]) -> None:
        self._store = store
        self._clock = clock
        self._statements = {
            table.name: (
                upsert(table),
                delete(table).where(next(iter(table.primary_key)) == bindparam("key")),
            )
            for table in tables
        }
        self._changes: dict[tuple[str, str], dict[str, Any] | None] = {}
        """Row by (table, primary key); None: delete it."""
        self._dirty = asyncio.Event()
        self.is_loaded = False
        """True once the stored rows were read; nothing is written before, since it could replace them."""
        self._has_failed = False

    async def _read(self, work: Callable[[Connection], T]) -> T | None:
        """Read the stored rows; None if the database cannot be read now, which is logged once."""
        try:
            rows = await self._store.read(work)
        except Unavailable as error:
            if not self._has_failed:
                tables = sorted(self._statements)
                log.warning("Failed to read stored rows; trying again", tables=tables, err=str(error))
            self._has_failed = True
            return None
        self.is_loaded = True
        return rows

    def change(self, table: str, key: str, row: dict[str, Any] | None) -> None:
        """Write the row soon; None: delete it."""
        self._changes[table, key] = row
        self._dirty.set()

    async def run(self) -> None:
        """Write changes until cancelled. While the database cannot be written, they wait in memory."""
        while True:
            await self._dirty.wait()
            try:
                await self.flush()
            except Unavailable:  # the store logs it
                await self._clock.sleep(RETRY_SECONDS)

    async def flush(self) -> None:
        """Write all changes, and return when they are on disk. Raises Unavailable if they cannot be written now."""
        if self._changes and not self.is_loaded:
            raise Unavailable("the stored rows were not read yet")
        changes, self._changes = self._changes, {}
        self._dirty.clear()
        if not changes:
            return
        try:
            await self._store.write(lambda connection: self._write(connection, changes))
        except Unavailable:
            self._changes = changes | self._changes
            self._dirty.set()
            raise

    async def close(self) -> None:
        """Write all changes at the end; a failure is logged."""
        try:
            await self.flush()
        except Unavailable as error:
            log.warning("Failed to store the last changes", tables=sorted(self._statements), err=str(error))

    def _write(self, connection: Connection, changes: dict[tuple[str, str], dict[str, Any] | None]) -> None:
        for name, (insert, remove) in self._statements.items():
            rows = [row for (table, _), row in changes.items() if table == name and row is not None]
            gone = [{"key": key} for (table, key), row in changes.items() if table == name and row is None]
            if rows:
                connection.execute(insert, rows)
            if gone:
                connection.execute(remove, gone)


class SessionRecords(BatchedRows):
    """Stored sessions and instances."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock, (_sessions, _instances, _unconfirmed))

    def note(self, session: Session) -> None:
        """Store the session soon."""
        row = {
            "id": session.id,
            "pod_id": session.pod_id,
            "pod_uid": session.pod_uid,
            "state": session.state.value,
            "session": _encoder.encode(session),
        }
        self.change(_sessions.name, session.id, row)

    def forget(self, session_id: str) -> None:
        """Delete the session's row soon."""
        self.change(_sessions.name, session_id, None)

    def note_instance(self, row: InstanceRow) -> None:
        """Store the instance soon."""
        self.change(_instances.name, row.uid, msgspec.structs.asdict(row))

    def forget_instance(self, uid: PodUid) -> None:
        """Delete the instance's row soon."""
        self.change(_instances.name, uid, None)

    def note_unconfirmed(self, uid: PodUid, session_id: str, is_unconfirmed: bool) -> None:
        """Store soon whether the application may still hold an ended session."""
        key = f"{uid} {session_id}"
        row = {"key": key, "pod_uid": uid, "session_id": session_id}
        self.change(_unconfirmed.name, key, row if is_unconfirmed else None)

    async def load(self) -> tuple[list[InstanceRow], list[Session], list[tuple[PodUid, str]]] | None:
        """Read all rows; invalid ones are left out. Returns None if the database cannot be read now.

        The last list has (pod, session) for each ended session that an application may still hold.
        """
        return await self._read(_load)


def _load(connection: Connection) -> tuple[list[InstanceRow], list[Session], list[tuple[PodUid, str]]]:
    return (
        read_rows(connection, select(_instances), lambda row: checked(InstanceRow(**row))),
        read_rows(connection, select(_sessions), _session),
        read_rows(
            connection, select(_unconfirmed), lambda row: (PodUid(row["pod_uid"]), str(row["session_id"]))
        ),
    )


def _session(row: RowMapping) -> Session:
    return _decoder.decode(row["session"])
