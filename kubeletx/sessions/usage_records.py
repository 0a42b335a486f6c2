"""Rows of usage in the state database, and the file of ended sessions for billing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Column, LargeBinary, MetaData, String, Table, select
from sqlalchemy.engine import Connection

from kubeletx.api import Clock, PodUid
from kubeletx.store import Store, read_rows

from .meter import LogPosition, PodReading, SessionCosts
from .records import BatchedRows

USAGE_TABLES = MetaData()
_usage, _totals = (
    Table(
        name,
        USAGE_TABLES,
        Column("key", String, primary_key=True),
        Column("usage", LargeBinary, nullable=False),
    )
    for name in ("session_usage", "session_usage_totals")
)

FILE_BYTES: Final = 16 << 20
FILES: Final = 5


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one session. `key`: its ID and the time of its creation; a later session of the name has another one.

    `counted_at`: time up to which it is counted. `reading`: last reading of its pod. `logs_at_open`, `logs_at_close`:
    ends of the pod's logs; None: not read yet. `is_exported`: its line in the file is on disk.
    """

    key: str
    id: str
    pod_id: str
    pod_uid: PodUid
    application: str
    origin: str
    created_at: datetime
    opened_at: datetime
    counted_at: datetime
    closed_at: datetime | None = None
    reason: str = ""
    costs: SessionCosts = SessionCosts()
    reading: PodReading | None = None
    logs_at_open: tuple[LogPosition, ...] | None = None
    logs_at_close: tuple[LogPosition, ...] | None = None
    is_exported: bool = False

    @property
    def total_key(self) -> str:
        """Key of the total that includes this session: ``namespace/application``."""
        return f"{self.id.split('/', 1)[0]}/{self.application}"

    def has_waited(self, now: datetime, seconds: float) -> bool:
        """Return True if the session ended at least `seconds` ago."""
        return self.closed_at is not None and (now - self.closed_at).total_seconds() >= seconds

    @property
    def is_counted(self) -> bool:
        """True once the last reading of an ended session is included."""
        return self.logs_at_close is not None


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of all sessions of one application in one namespace. `key`: ``namespace/application``."""

    key: str
    costs: SessionCosts
    updated_at: datetime

    @property
    def labels(self) -> tuple[str, str]:
        namespace, _, application = self.key.partition("/")
        return namespace, application


class UsageRecords(BatchedRows):
    """Stored usage of sessions, and totals of applications."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock, (_usage, _totals))

    def note(self, row: UsageRow | UsageTotal) -> None:
        """Store the row soon."""
        table = _usage if isinstance(row, UsageRow) else _totals
        self.change(table.name, row.key, {"key": row.key, "usage": msgspec.json.encode(row)})

    def forget(self, row: UsageRow | UsageTotal) -> None:
        """Delete the row soon."""
        self.change((_usage if isinstance(row, UsageRow) else _totals).name, row.key, None)

    async def load(self) -> tuple[list[UsageRow], list[UsageTotal]] | None:
        """Read all rows; invalid ones are left out. Returns None if the database cannot be read now."""
        return await self._read(_load)


def _load(connection: Connection) -> tuple[list[UsageRow], list[UsageTotal]]:
    return (
        read_rows(connection, select(_usage), lambda row: msgspec.json.decode(row["usage"], type=UsageRow)),
        read_rows(
            connection, select(_totals), lambda row: msgspec.json.decode(row["usage"], type=UsageTotal)
        ),
    )


class UsageFile:
    """File with one JSON line for each ended session. `path`: the newest file; older ones are ``PATH.1`` and so on.

    A line that was written just before a crash may be written again; `key` tells.
    """

    def __init__(self, path: Path, *, max_bytes: int = FILE_BYTES, files: int = FILES) -> None:
        """`max_bytes`: a file that is larger is renamed before the next line. `files`: most files that are kept."""
        self.path = path
        self._max_bytes = max_bytes
        self._files = files

    def append(self, rows: Iterable[UsageRow]) -> None:
        """Write the lines to disk. Blocks; raises OSError, and then no part of them remains."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size >= self._max_bytes:
            self._rotate()
        self.path.touch(mode=0o600)
        with self.path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            lines = memoryview(b"".join(_line(row) + b"\n" for row in rows))
            try:
                while lines:
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
            except OSError:  # of a full disk: half a line would spoil the next one
                file.truncate(before)
                raise

    def _rotate(self) -> None:
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._files))]
        for old, new in reversed(tuple(pairwise(names))):
            if old.exists():
                old.replace(new)


def _line(row: UsageRow) -> bytes:
    """Return the fields of a row that are not the agent's own, with names in camelCase."""
    fields = msgspec.structs.asdict(row)
    for own in ("reading", "is_exported", "counted_at"):
        del fields[own]
    costs = msgspec.structs.asdict(fields.pop("costs"))
    return msgspec.json.encode({_camel(name): value for name, value in (fields | costs).items()})


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
