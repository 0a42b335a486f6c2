"""Objects in memory with one counter of revisions, as etcd stores them for an API server.

Each change increases the counter. The new number becomes the resourceVersion of the changed object. Changes
are kept in a history from which watches start. A test can clear the history, as a compaction of etcd does;
then a watch from an earlier revision gets 410. A test can also replace the whole state by an earlier one, as
when etcd is restored from a backup; the counter then returns to its old value. Source: apiserver,
pkg/storage/etcd3/store.go; etcd's MVCC.

Not thread-safe: everything runs in the server's event loop. Stored objects are never changed in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from .errors import Json
from .resources import Resource

Key = tuple[str, str]
"""Namespace and name of an object. The namespace of cluster-scoped objects is ``""``."""

HISTORY: Final = 10_000
FIRST_REVISION: Final = 100


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One version of an object.

    `raw`: the object as JSON, so that it is encoded only once. `bare`: the JSON without kind and apiVersion,
    as lists contain it.
    """

    value: Json
    raw: bytes
    bare: bytes
    revision: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change in the history.

    `table`: full name of the object's resource. `before`: None for a creation. `after`: None for a removal.
    `last`: for a removal, the object with the revision of the removal as its resourceVersion, as watchers get
    it; else None.
    """

    revision: int
    table: str
    before: Stored | None
    after: Stored | None
    last: Stored | None = None


class Backup(msgspec.Struct, frozen=True):
    """Copy of all objects at one revision, for `Store.restore`."""

    revision: int
    tables: dict[str, dict[Key, Stored]]


def key_of(value: Json) -> Key:
    """Return the namespace and the name of an object."""
    metadata = value["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Store:
    """Stores the objects of all resources and the history of their changes."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.forgotten = FIRST_REVISION
        """The history contains only the changes after this revision."""
        self._tables: dict[str, dict[Key, Stored]] = {}
        self._history: deque[Change] = deque()
        self._listeners: set[Callable[[Change], None]] = set()

    def find(self, resource: Resource, key: Key) -> Stored | None:
        """Return the current version of the object; None if it does not exist."""
        return self._tables.get(resource.full_name, {}).get(key)

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Stored]:
        """Yield the objects of a resource in order of namespace and name.

        `namespace`: only objects in this namespace; empty: in all namespaces.
        """
        table = self._tables.get(resource.full_name, {})
        for key in sorted(table):
            if not namespace or key[0] == namespace:
                yield table[key]

    def each(self, resource: Resource) -> Iterable[Stored]:
        """Return the objects of a resource, in no particular order."""
        return self._tables.get(resource.full_name, {}).values()

    def all_at(self, resource: Resource, revision: int, namespace: str = "") -> list[Stored] | None:
        """Return the objects of a resource as they were at `revision`; None if the history begins later."""
        if revision < self.forgotten:
            return None
        table = dict(self._tables.get(resource.full_name, {}))
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.table != resource.full_name:
                continue
            if change.before is not None:
                table[key_of(change.before.value)] = change.before
            elif change.after is not None:
                table.pop(key_of(change.after.value), None)
        return [table[key] for key in sorted(table) if not namespace or key[0] == namespace]

    def put(self, resource: Resource, value: Json) -> Stored:
        """Create or replace the object at the next revision; returns the stored version.

        If the object is equal to the stored one, nothing is written. Source: etcd3 store GuaranteedUpdate,
        which writes nothing if the bytes are equal.
        """
        key = key_of(value)
        before = self.find(resource, key)
        if before is not None and _same(before.value, value):
            return before
        self.revision += 1
        after = _stored(value, self.revision)
        self._tables.setdefault(resource.full_name, {})[key] = after
        self._note(Change(revision=self.revision, table=resource.full_name, before=before, after=after))
        return after

    def remove(self, resource: Resource, key: Key) -> Stored:
        """Remove the object and return it with the revision of the removal, as watchers get it.

        Raises KeyError if it does not exist.
        """
        before = self._tables[resource.full_name].pop(key)
        self.revision += 1
        last = _stored(before.value, self.revision)
        self._note(
            Change(revision=self.revision, table=resource.full_name, before=before, after=None, last=last)
        )
        return last

    def since(self, resource: Resource, revision: int) -> list[Change] | None:
        """Return the changes of a resource after `revision`; None if the history begins later."""
        if revision < self.forgotten:
            return None
        return [
            change
            for change in self._history
            if change.revision > revision and change.table == resource.full_name
        ]

    def forget_history(self) -> None:
        """Clear the history, so that no watch can start from an earlier revision.

        The counter is increased, so that revisions of earlier lists are too old as well.
        """
        self.revision += 1
        self.forgotten = self.revision
        self._history.clear()

    def backup(self) -> Backup:
        """Return a copy of all current objects, for `restore`."""
        return Backup(self.revision, {name: dict(table) for name, table in self._tables.items()})

    def restore(self, backup: Backup) -> None:
        """Replace all objects and the counter of revisions by those of a backup; later changes are lost."""
        self._tables = {name: dict(table) for name, table in backup.tables.items()}
        self.revision = self.forgotten = backup.revision
        self._history.clear()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every later change. Returns a function that stops this."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _note(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > HISTORY:
            self.forgotten = self._history.popleft().revision
        for listener in tuple(self._listeners):
            listener(change)


def _same(one: Json, other: Json) -> bool:
    return _without_version(one) == _without_version(other)


def _without_version(value: Json) -> Json:
    metadata = {name: part for name, part in value["metadata"].items() if name != "resourceVersion"}
    return {**value, "metadata": metadata}


def _stored(value: Json, revision: int) -> Stored:
    metadata: dict[str, Any] = {**value["metadata"], "resourceVersion": str(revision)}
    whole = {**value, "metadata": metadata}
    bare = {name: part for name, part in whole.items() if name not in ("kind", "apiVersion")}
    encoded = msgspec.json.encode(bare)
    head = msgspec.json.encode({"kind": whole["kind"], "apiVersion": whole["apiVersion"]})
    return Stored(whole, head[:-1] + b"," + encoded[1:], encoded, revision)
