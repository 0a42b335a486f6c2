"""Objects in memory with one counter of versions, as etcd stores them for an API server.

Each change has the next revision, which becomes the object's resourceVersion, and is kept in a history from
which watches start. The history can be forgotten (then a watch from an earlier revision gets 410). The whole
state can be replaced by an earlier one, as when etcd is restored from a backup: the counter goes back too.
Source: apiserver, pkg/storage/etcd3/store.go; etcd's MVCC.

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
"""Namespace (``""`` for cluster-scoped objects) and name of an object."""

HISTORY: Final = 10_000
FIRST_REVISION: Final = 100


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One version of an object. `raw`: its JSON, so that it is encoded only once.

    `bare`: its JSON without kind and apiVersion, as items of lists have it.
    """

    value: Json
    raw: bytes
    bare: bytes
    revision: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change in the history. `table`: full name of the object's resource.

    `before`: None for a creation; `after`: None for a removal. `last`: for a removal, the object as it was,
    at the revision of the removal, which watchers get.
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
    """Return the key of an object."""
    metadata = value["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Store:
    """Stores the objects of all resources and the history of their changes."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.forgotten = FIRST_REVISION
        """Changes up to this revision are not in the history any more."""
        self._tables: dict[str, dict[Key, Stored]] = {}
        self._history: deque[Change] = deque()
        self._listeners: set[Callable[[Change], None]] = set()

    def find(self, resource: Resource, key: Key) -> Stored | None:
        """Return the object as it is now; None if it does not exist."""
        return self._tables.get(resource.full_name, {}).get(key)

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Stored]:
        """Yield the objects of a resource in order of namespace and name.

        `namespace`: only these; empty: all.
        """
        table = self._tables.get(resource.full_name, {})
        for key in sorted(table):
            if not namespace or key[0] == namespace:
                yield table[key]

    def each(self, resource: Resource) -> Iterable[Stored]:
        """Return the objects of a resource, in no particular order."""
        return self._tables.get(resource.full_name, {}).values()

    def all_at(self, resource: Resource, revision: int, namespace: str = "") -> list[Stored] | None:
        """Return the objects of a resource as they were at `revision`; None if the history does not reach
        back so far.
        """
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
        """Create or replace the object, at the next revision; returns it.

        An object equal to the stored one is not written. Source: etcd3 store GuaranteedUpdate, which writes
        nothing if the bytes are equal.
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
        """Remove the object, which must exist; returns it at the revision of the removal, for watchers."""
        before = self._tables[resource.full_name].pop(key)
        self.revision += 1
        last = _stored(before.value, self.revision)
        self._note(
            Change(revision=self.revision, table=resource.full_name, before=before, after=None, last=last)
        )
        return last

    def since(self, resource: Resource, revision: int) -> list[Change] | None:
        """Return the changes of a resource after `revision`; None if the history does not reach back so far."""
        if revision < self.forgotten:
            return None
        return [one for one in self._history if one.revision > revision and one.table == resource.full_name]

    def forget_history(self) -> None:
        """Forget the history, so that no watch can start from an earlier revision.

        The counter is raised, so that the revisions of earlier lists are forgotten too.
        """
        self.revision += 1
        self.forgotten = self.revision
        self._history.clear()

    def backup(self) -> Backup:
        """Return a copy of all objects as they are now."""
        return Backup(self.revision, {name: dict(table) for name, table in self._tables.items()})

    def restore(self, backup: Backup) -> None:
        """Replace all objects and the counter by those of a backup; later changes are lost."""
        self._tables = {name: dict(table) for name, table in backup.tables.items()}
        self.revision = self.forgotten = backup.revision
        self._history.clear()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on; returns the function that ends this."""
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
