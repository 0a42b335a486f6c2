"""`EventRecorder`: the events that users see, aggregated, bounded, and kept in the state database.

    record ──▶ rows in memory (authoritative) ──▶ watchers
                       └── once a second at most: changed rows ──▶ store.write_later

Equal events (same object, type, reason, message) are one row with a count. From the tenth different message of an
object with the same type and reason on, the messages share one row, until none comes for ten minutes, as in client-go
(tools/record, EventAggregator). The number of rows is limited in total and for each object; the oldest rows are
dropped. A burst of ten thousand events therefore costs memory for a thousand rows and one write, and the caller of
`record` never waits.

All methods belong to the event loop's thread. Lists and watches return core/v1 Events.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, ObjectRef
from kubeletx.api.text import is_printable, printable
from kubeletx.kube.types.event import Event, EventSource
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference
from kubeletx.store import Store

from .event_table import EventRow, delete_before, select_newest, write

log = structlog.get_logger(__name__)

COMPONENT = "kubelet"
COMBINED = "(combined from similar events): "
MAX_MESSAGE = 4096
"""Maximum characters of a message: an error may quote megabytes of text of a manifest."""
_API_VERSIONS = {"Pod": "v1", "Node": "v1"}
_DEFAULT_NAMESPACE = "default"


class EventLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the event history.

    `rows`: maximum rows in total. `similar`: number of different messages of one object, type and reason from which on
    they share a row; the count begins again after `similar_seconds` without such an event. `flush_seconds`: longest delay of a write to the database.
    `watcher_queue`: maximum events that wait for a slow watcher.
    """

    rows: int = 1000
    rows_per_object: int = 50
    similar: int = 10
    similar_seconds: float = 600.0
    flush_seconds: float = 1.0
    watcher_queue: int = 1000


class _Key(NamedTuple):
    ref: tuple[str, str, str, str, str]
    type: str
    reason: str
    message: str


class _Similar(msgspec.Struct):
    """Different messages of one object, type and reason. `at`: time of the last one."""

    at: datetime
    messages: set[str]


class EventRecorder:
    """Records events of pods and other objects, keeps the newest of them, and lists and watches them.

    Implements `kubeletx.api.EventSink`.
    """

    def __init__(
        self, *, clock: Clock, node_name: str, store: Store | None = None, limits: EventLimits | None = None
    ) -> None:
        """`store`: database that keeps the events over restarts; None: they are kept in memory only."""
        self._clock = clock
        self._node_name = node_name
        self._store = store
        self._limits = limits or EventLimits()
        self._rows: OrderedDict[_Key, EventRow] = OrderedDict()
        self._per_object: dict[tuple[str, ...], OrderedDict[_Key, None]] = {}
        self._similar: OrderedDict[tuple[tuple[str, ...], str, str], _Similar] = OrderedDict()
        self._dirty: dict[str, EventRow] = {}
        self._gone: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: list[_Watcher] = []
        self._number = 0
        self._prefix = ""

    async def load(self) -> None:
        """Load the events that earlier agent processes stored.

        If the database cannot be read, a warning is logged and none are loaded.
        """
        if self._store is None:
            return
        limit = self._limits.rows
        try:
            rows = await self._store.read(lambda connection: select_newest(connection, limit))
        except KubeletxError as error:
            log.warning("Started without earlier events", err=str(error))
            return
        recorded = list(self._rows.items())
        self._rows.clear()
        self._per_object.clear()
        for row in rows:
            is_combined = row.message.startswith(COMBINED)
            self._keep(_key(row.ref, row.type, row.reason, COMBINED if is_combined else row.message), row)
        for key, row in recorded:
            self._keep(key, row)
        if len(rows) == limit:
            oldest = rows[0].last_at
            self._store.write_later(lambda connection: delete_before(connection, oldest))

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Add an event about the object `ref`; if an equal event is stored, increase its count. Never waits."""
        now = self._clock.now()
        ref, message = _writable(ref), shortened(printable(message))
        key = _key(ref, type, reason, self._merged(ref, type, reason, message, now))
        old = self._rows.get(key)
        if old is None:
            row = EventRow(
                id=self._new_id(now),
                ref=ref,
                type=type,
                reason=reason,
                message=self._text(key, message),
                count=1,
                first_at=now,
                last_at=now,
            )
        else:
            row = msgspec.structs.replace(
                old, count=old.count + 1, last_at=now, message=self._text(key, message)
            )
        self._keep(key, row)
        self._dirty[row.id] = row
        self._arm()
        for watcher in self._watchers:
            watcher.put(row)

    def list_events(self, ref: ObjectRef | None = None) -> list[Event]:
        """Return the stored events, oldest first.

        `ref`: return only events about the object with this kind, namespace and name.
        """
        wanted = None if ref is None else _identity(ref)[:3]
        rows = [row for row in self._rows.values() if wanted in (None, _identity(row.ref)[:3])]
        return [self.to_event(row) for row in sorted(rows, key=lambda row: row.last_at)]

    async def watch_events(self, *, since: datetime | None = None) -> AsyncGenerator[Event, None]:
        """Yield events as they are recorded; an event that occurs again is yielded again with a higher count.

        A slow reader misses events. `since`: first yield the stored events that occurred at or after this time; None:
        yield only events that are recorded from now on.
        """
        watcher = _Watcher(self._limits.watcher_queue)
        self._watchers.append(watcher)
        earlier = [] if since is None else [row for row in self._rows.values() if row.last_at >= since]
        try:
            for row in sorted(earlier, key=lambda row: row.last_at):
                yield self.to_event(row)
            while True:
                yield self.to_event(await watcher.get())
        finally:
            self._watchers.remove(watcher)

    def to_event(self, row: EventRow) -> Event:
        """Convert a row to a core/v1 Event."""
        namespace = row.ref.namespace or _DEFAULT_NAMESPACE
        return Event(
            metadata=ObjectMeta(
                name=f"{row.ref.name}.{row.id}",
                namespace=namespace,
                uid=row.id,
                creation_timestamp=row.first_at,
            ),
            involved_object=ObjectReference(
                kind=row.ref.kind,
                namespace=row.ref.namespace,
                name=row.ref.name,
                uid=row.ref.uid,
                api_version=_API_VERSIONS.get(row.ref.kind, ""),
                field_path=row.ref.field,
            ),
            type=row.type,
            reason=row.reason,
            message=row.message,
            count=row.count,
            first_timestamp=row.first_at,
            last_timestamp=row.last_at,
            source=EventSource(component=COMPONENT, host=self._node_name),
            reporting_component=COMPONENT,
            reporting_instance=self._node_name,
        )

    def flush(self) -> None:
        """Pass the changed rows to the store, which writes them later.

        A timer calls this after changes. Call it before the store is closed.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, gone = list(self._dirty.values()), sorted(self._gone)
        self._dirty.clear()
        self._gone.clear()
        if self._store is not None and (rows or gone):
            self._store.write_later(lambda connection: write(connection, rows, gone))

    def _merged(self, ref: ObjectRef, type: str, reason: str, message: str, now: datetime) -> str:
        """Return `message`, or `COMBINED` if the object has too many different messages of this type and reason.

        Events with the same result share a row.
        """
        group = (_identity(ref)[:4], type, reason)
        similar = self._similar.get(group)
        window = timedelta(seconds=self._limits.similar_seconds)
        if similar is None or now - similar.at > window or now < similar.at:
            similar = self._similar[group] = _Similar(at=now, messages=set())
        similar.at = now
        self._similar.move_to_end(group)
        if len(self._similar) > self._limits.rows:
            self._similar.popitem(last=False)
        if message in similar.messages:
            return message
        if len(similar.messages) + 1 >= self._limits.similar:
            return COMBINED
        similar.messages.add(message)
        return message

    def _text(self, key: _Key, message: str) -> str:
        return COMBINED + message if key.message == COMBINED else message

    def _keep(self, key: _Key, row: EventRow) -> None:
        mine = self._per_object.setdefault(key.ref[:4], OrderedDict())
        self._rows[key] = row
        self._rows.move_to_end(key)
        mine[key] = None
        mine.move_to_end(key)
        if len(mine) > self._limits.rows_per_object:
            self._drop(next(iter(mine)))
        if len(self._rows) > self._limits.rows:
            self._drop(next(iter(self._rows)))

    def _drop(self, key: _Key) -> None:
        row = self._rows.pop(key)
        mine = self._per_object[key.ref[:4]]
        del mine[key]
        if not mine:
            del self._per_object[key.ref[:4]]
        self._dirty.pop(row.id, None)
        self._gone.add(row.id)

    def _new_id(self, now: datetime) -> str:
        if not self._prefix:
            self._prefix = f"{int(now.timestamp() * 1000):x}"
        self._number += 1
        return f"{self._prefix}{self._number:05x}"

    def _arm(self) -> None:
        if self._timer is None and self._store is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.flush_seconds, self.flush)


class _Watcher:
    """Queue of limited length for one watcher's events. A row that is already queued is replaced by its newer state.

    When the queue is full, the oldest row is dropped.
    """

    def __init__(self, limit: int) -> None:
        self._rows: OrderedDict[str, EventRow] = OrderedDict()
        self._limit = limit
        self._changed = asyncio.Event()

    def put(self, row: EventRow) -> None:
        self._rows[row.id] = row
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)
        self._changed.set()

    async def get(self) -> EventRow:
        while not self._rows:
            self._changed.clear()
            await self._changed.wait()
        return self._rows.popitem(last=False)[1]


def _writable(ref: ObjectRef) -> ObjectRef:
    """Return the reference with characters that UTF-8 cannot encode replaced by escapes (see `printable`)."""
    if all(is_printable(text) for text in _identity(ref)):
        return ref
    kind, namespace, name, uid, field = map(printable, _identity(ref))
    return ObjectRef(kind=kind, namespace=namespace, name=name, uid=uid, field=field)


def shortened(message: str) -> str:
    """Return the message; if it is longer than `MAX_MESSAGE` characters, its beginning followed by ``...``."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."


def _key(ref: ObjectRef, type: str, reason: str, message: str) -> _Key:
    """Return the key of the event's row; combined events of all fields (containers) of an object share a row."""
    identity = _identity(ref)
    return _Key((*identity[:4], "") if message == COMBINED else identity, type, reason, message)


def _identity(ref: ObjectRef) -> tuple[str, str, str, str, str]:
    return (ref.kind, ref.namespace, ref.name, ref.uid, ref.field)
