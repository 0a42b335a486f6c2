"""Bindings of pods to runtimes: each stores the runtime that a pod UID is assigned to (rule 1 of docs/architecture.md).

A binding is written before anything is created for the pod, and deleted after everything of the pod is removed. It
never changes. `Bindings` keeps the database table and a copy in memory. The store groups commits, so a hundred pods
that start together cost a few disk writes.

Stopping a pod never waits for the database (DECISIONS 9): `settle` repeats a failed deletion, and the write of a
binding that was recovered from labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec
import structlog
from sqlalchemy import Column, MetaData, String, Table, delete, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import Conflict, KubeletxError, NotFound, PodUid, RuntimeName, Unavailable
from kubeletx.store import Store, checked, moment_of, read_rows, upsert

log = structlog.get_logger(__name__)

POD = "pod"
FRONT = "front"
"""Owners of a binding. POD: a pod of this agent's sources. FRONT: a sandbox that a stock kubelet made over the CRI."""

METADATA = MetaData()
BINDINGS = Table(
    "bindings",
    METADATA,
    Column("uid", String, primary_key=True),
    Column("runtime", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("source", String, nullable=False),
    Column("bound_at", String, nullable=False),
    Column("why", String, nullable=False),
)
_UPSERT = upsert(BINDINGS)


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Binding of one pod to its runtime.

    `kind`: plugin kind of the runtime. `owner`: `POD` for a pod of this agent, `FRONT` for a sandbox that a stock
    kubelet made over the CRI. `source`: source of the pod. `why`: reason for the choice of the runtime, for users.
    """

    uid: PodUid
    runtime: RuntimeName
    kind: str
    owner: str = POD
    namespace: str = ""
    name: str = ""
    source: str = ""
    bound_at: datetime
    why: str = ""


class Bindings:
    """Stores which runtime each pod is assigned to, in memory and on disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_uid: dict[PodUid, Binding] = {}
        self._writing: dict[PodUid, tuple[RuntimeName, asyncio.Task[None]]] = {}
        self._unsaved: set[PodUid] = set()
        self._undeleted: set[PodUid] = set()
        self._loaded = False

    async def load(self) -> bool:
        """Read the stored bindings; return True, or False if the database cannot be read now.

        After False the caller recovers bindings from the labels on the runtimes, and `settle` reads the database later.
        """
        try:
            rows = await self._store.read(_select_all)
        except Unavailable as error:
            if not self._loaded:
                log.warning(
                    "Failed to read the bindings; they are looked for on the runtimes", err=str(error)
                )
            return False
        for binding in rows:
            # Its row is still there only because the delete failed.
            if binding.uid not in self._undeleted:
                # setdefault: a binding made since the start is newer than the row.
                self._by_uid.setdefault(binding.uid, binding)
        self._loaded = True
        return True

    @property
    def all(self) -> Mapping[PodUid, Binding]:
        """Every binding by pod UID; a live, read-only view."""
        return MappingProxyType(self._by_uid)

    def find(self, uid: PodUid) -> Binding | None:
        """Return the pod's binding; None if the pod is not assigned to a runtime."""
        return self._by_uid.get(uid)

    def get(self, uid: PodUid) -> Binding:
        """Return the pod's binding. Raises NotFound if the pod is not assigned to a runtime."""
        try:
            return self._by_uid[uid]
        except KeyError:
            raise NotFound(f"pod {uid} is not bound to a runtime") from None

    def of_runtime(self, runtime: str) -> tuple[Binding, ...]:
        """Return every binding to one runtime, in the order in which the bindings were read or made."""
        return tuple(b for b in self._by_uid.values() if b.runtime == runtime)

    def is_writing(self, runtime: str) -> bool:
        """Return True while a binding to the runtime is being written."""
        return any(name == runtime for name, _ in self._writing.values())

    async def wait_written(self, runtime: str) -> None:
        """Wait until no binding to the runtime is being written."""
        while tasks := [task for name, task in self._writing.values() if name == runtime]:
            await asyncio.wait(tasks)

    async def bind(self, binding: Binding) -> Binding:
        """Write the binding and return it once it is on disk.

        If the pod is assigned to this runtime already, the earlier binding is returned. Raises Conflict if the pod is
        assigned to another runtime. Raises Unavailable if the database cannot be written; the pod is not assigned then.
        """
        # A loop: a third caller may have begun to write while this one waited.
        while (writing := self._writing.get(binding.uid)) is not None:
            await asyncio.wait([writing[1]])
        if (old := self._by_uid.get(binding.uid)) is not None:
            if old.runtime != binding.runtime:
                raise Conflict(
                    f"pod {binding.uid} is bound to runtime {old.runtime!r} already, so it cannot run on "
                    f"{binding.runtime!r}; delete the pod and make it again"
                )
            return old
        task = asyncio.create_task(self._write(binding), name=f"bind-{binding.uid}")
        self._writing[binding.uid] = binding.runtime, task
        task.add_done_callback(lambda done: self._written(binding.uid, done))
        await asyncio.shield(task)  # a cancelled caller does not leave memory and disk different
        return binding

    async def unbind(self, uid: PodUid) -> None:
        """Delete the binding, as the last step of a pod's end. Succeeds if there is none.

        Also succeeds if the database cannot be written: `settle` deletes the row later.
        """
        if self._by_uid.pop(uid, None) is None:
            return
        self._unsaved.discard(uid)
        self._undeleted.add(uid)
        try:
            await self._store.write(lambda connection: _delete(connection, uid))
        except KubeletxError as error:
            log.warning("Failed to delete a binding; trying again later", pod_uid=uid, err=str(error))
            return
        self._undeleted.discard(uid)

    def restore(self, binding: Binding) -> bool:
        """Add a binding that was recovered from labels on a runtime; return False if the pod has one already.

        The binding is valid at once, since the pod exists on the runtime, and is written to disk in the background.
        """
        if binding.uid in self._by_uid:
            return False
        self._by_uid[binding.uid] = binding
        self._undeleted.discard(binding.uid)
        self._unsaved.add(binding.uid)
        self._store.write_later(lambda connection: _insert(connection, binding))
        return True

    async def settle(self) -> None:
        """Repeat database operations that failed: the read of all bindings, deletions, writes of recovered bindings.

        Raises Unavailable if the database still cannot be written.
        """
        if not self._loaded:
            await self.load()
        unsaved = [self._by_uid[uid] for uid in self._unsaved if uid in self._by_uid]
        undeleted = tuple(self._undeleted)
        if not unsaved and not undeleted:
            return

        def work(connection: Connection) -> None:
            for binding in unsaved:
                _insert(connection, binding)
            for uid in undeleted:
                _delete(connection, uid)

        await self._store.write(work)
        self._unsaved.difference_update(binding.uid for binding in unsaved)
        self._undeleted.difference_update(undeleted)

    async def _write(self, binding: Binding) -> None:
        was_undeleted = binding.uid in self._undeleted
        self._undeleted.discard(binding.uid)  # or `settle` would delete the row that is written here
        try:
            await self._store.write(lambda connection: _insert(connection, binding))
        except BaseException:
            if was_undeleted:
                self._undeleted.add(binding.uid)
            raise
        self._by_uid[binding.uid] = binding

    def _written(self, uid: PodUid, task: asyncio.Future[None]) -> None:
        self._writing.pop(uid, None)
        if not task.cancelled():
            task.exception()  # retrieved even if the caller was cancelled


def _insert(connection: Connection, binding: Binding) -> None:
    connection.execute(_UPSERT, _to_row(binding))


def _delete(connection: Connection, uid: PodUid) -> None:
    connection.execute(delete(BINDINGS).where(BINDINGS.c.uid == uid))


def _select_all(connection: Connection) -> list[Binding]:
    return read_rows(connection, select(BINDINGS).order_by(BINDINGS.c.bound_at, BINDINGS.c.uid), _from_row)


def _to_row(binding: Binding) -> dict[str, Any]:
    row = {name: getattr(binding, name) for name in binding.__struct_fields__}
    row["bound_at"] = binding.bound_at.isoformat()
    return row


def _from_row(row: RowMapping) -> Binding:
    values = dict(row)
    values["bound_at"] = moment_of(row["bound_at"])
    return checked(Binding(**values))
