"""Objects in memory under one counter of versions, as etcd holds them for an API server.

Each change takes the next revision, which becomes the object's resourceVersion, and is remembered in a history
from which watches start. History can be forgotten (then a watch from before it gets 410), and the whole
state can be put back to an earlier one, as when etcd is restored from a backup: the counter goes back too.
Source: apiserver, pkg/storage/etcd3/store.go; etcd's MVCC.

Not safe for threads: everything runs in the server's event loop. Stored objects are never changed in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from .errors import Json
from .resources import Resource

Key = tuple[str, str]
"""Namespace (``""`` for cluster-scoped objects) and name."""

HISTORY: Final = 10_000
FIRST_REVISION: Final = 100


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An object at one version: its value, and its JSON so that lists need not be encoded again.

    `bare`: the JSON without kind and apiVersion, as in lists.
    """

    value: Json
    raw: bytes
    bare: bytes
    revision: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One step of history. `table`: the full name of the resource.

    `before` is None for a creation, `after` for a removal. `last`: the object that watchers get for a removal, as it
    was, at the revision of the removal.
    """

    revision: int
    table: str
    before: Stored | None
    after: Stored | None
    last: Stored | None = None


class Backup(msgspec.Struct, frozen=True):
    """All objects at one moment, for `Store.restore`."""

    revision: int
    tables: dict[str, dict[Key, Stored]]


def key_of(value: Json) -> Key:
    """The key of an object."""
    metadata = value["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Store:
    """Tables of objects by the full name of their resource."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.forgotten = FIRST_REVISION
        """Changes up to this revision are forgotten."""
        self._tables: dict[str, dict[Key, Stored]] = {}
        self._history: deque[Change] = deque()
        self._listeners: set[Callable[[Change], None]] = set()

    def find(self, resource: Resource, key: Key) -> Stored | None:
        """The object as it is now."""
        return self._tables.get(resource.full_name, {}).get(key)

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Stored]:
        """Objects in order of namespace and name; only those of `namespace` if it is given."""
        table = self._tables.get(resource.full_name, {})
        for key in sorted(table):
            if not namespace or key[0] == namespace:
                yield table[key]

    def each(self, resource: Resource) -> Iterable[Stored]:
        """Objects in no order."""
        return self._tables.get(resource.full_name, {}).values()

    def all_at(self, resource: Resource, revision: int, namespace: str = "") -> list[Stored] | None:
        """Objects at an earlier revision; None if that is forgotten."""
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
        """Create or replace the object at the next revision; one that equals the stored is not written.

        Source: etcd3 store GuaranteedUpdate, which writes nothing when the bytes are the same.
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
        """Remove the object, which must exist; returns it as watchers see it."""
        before = self._tables[resource.full_name].pop(key)
        self.revision += 1
        last = _stored(before.value, self.revision)
        self._note(
            Change(revision=self.revision, table=resource.full_name, before=before, after=None, last=last)
        )
        return last

    def since(self, resource: Resource, revision: int) -> list[Change] | None:
        """Changes of a resource after a revision; None if they are forgotten."""
        if revision < self.forgotten:
            return None
        return [one for one in self._history if one.revision > revision and one.table == resource.full_name]

    def forget_history(self) -> None:
        """Forget the history: no watch can start before now.

        The counter is raised, so that now differs from the last list.
        """
        self.revision += 1
        self.forgotten = self.revision
        self._history.clear()

    def backup(self) -> Backup:
        """All objects as they are now."""
        return Backup(self.revision, {name: dict(table) for name, table in self._tables.items()})

    def restore(self, backup: Backup) -> None:
        """Restore a backup, including the counter; later changes are lost."""
        self._tables = {name: dict(table) for name, table in backup.tables.items()}
        self.revision = self.forgotten = backup.revision
        self._history.clear()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener on every change; returns the function that ends this."""
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
