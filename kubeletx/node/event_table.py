"""Database table of the event history, which is kept over restarts of the agent; reads and writes its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Column, Integer, MetaData, String, Table, delete, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import ObjectRef
from kubeletx.store import checked, moment_of, read_rows, upsert

METADATA = MetaData()
EVENTS = Table(
    "events",
    METADATA,
    Column("id", String, primary_key=True),
    Column("ref_kind", String, nullable=False),
    Column("ref_namespace", String, nullable=False),
    Column("ref_name", String, nullable=False),
    Column("ref_uid", String, nullable=False),
    Column("ref_field", String, nullable=False),
    Column("type", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("message", String, nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_at", String, nullable=False),
    Column("last_at", String, nullable=False, index=True),
)
_UPSERT = upsert(EVENTS)


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the event history: equal events together.

    `count`: how often the event occurred, between `first_at` and `last_at`. `id`: unique on this node, never reused.
    """

    id: str
    ref: ObjectRef
    type: str
    reason: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime


def select_newest(connection: Connection, limit: int) -> list[EventRow]:
    """Return the newest `limit` rows, oldest first."""
    query = select(EVENTS).order_by(EVENTS.c.last_at.desc(), EVENTS.c.id.desc()).limit(limit)
    return read_rows(connection, query, _from_row)[::-1]


def _from_row(row: RowMapping) -> EventRow:
    event = EventRow(
        id=row["id"],
        ref=ObjectRef(
            kind=row["ref_kind"],
            name=row["ref_name"],
            namespace=row["ref_namespace"],
            uid=row["ref_uid"],
            field=row["ref_field"],
        ),
        type=row["type"],
        reason=row["reason"],
        message=row["message"],
        count=row["count"],
        first_at=moment_of(row["first_at"]),
        last_at=moment_of(row["last_at"]),
    )
    return checked(event)


def delete_before(connection: Connection, at: datetime) -> None:
    """Delete the rows whose event last occurred before `at`."""
    connection.execute(delete(EVENTS).where(EVENTS.c.last_at < at.isoformat()))


def write(connection: Connection, rows: Sequence[EventRow], gone: Iterable[str]) -> None:
    """Insert or replace `rows`, and delete the rows whose ids are in `gone`."""
    if rows:
        connection.execute(
            _UPSERT,
            [
                {
                    "id": row.id,
                    "ref_kind": row.ref.kind,
                    "ref_namespace": row.ref.namespace,
                    "ref_name": row.ref.name,
                    "ref_uid": row.ref.uid,
                    "ref_field": row.ref.field,
                    "type": row.type,
                    "reason": row.reason,
                    "message": row.message,
                    "count": row.count,
                    "first_at": row.first_at.isoformat(),
                    "last_at": row.last_at.isoformat(),
                }
                for row in rows
            ],
        )
    ids = list(gone)
    if ids:
        connection.execute(delete(EVENTS).where(EVENTS.c.id.in_(ids)))
