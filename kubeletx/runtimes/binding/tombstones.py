"""Tombstones: records of pods that were ended by force while their runtime did not answer (DECISIONS 11).

When the runtime answers again, everything that is left of the pod there is removed, then the tombstone (see
`clear_leftovers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
import structlog
from sqlalchemy import Column, String, Table, delete, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import Clock, Conflict, KubeletxError, PodUid, RuntimeName, SandboxId, Unavailable
from kubeletx.api.backoff import Backoff
from kubeletx.store import Store, checked, read_rows, upsert

from ..handles.handle import RuntimeHandle
from .bindings import METADATA

log = structlog.get_logger(__name__)

TOMBSTONES = Table(
    "tombstones",
    METADATA,
    Column("uid", String, primary_key=True),
    Column("runtime", String, primary_key=True),
    Column("sandbox_ids", String, nullable=False),
)
_UPSERT = upsert(TOMBSTONES)


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Record that everything of a pod, which was ended by force, has to be removed from one runtime.

    `sandbox_ids`: last known sandbox ids, for users only; the runtime is queried to find what to remove.
    """

    uid: PodUid
    runtime: RuntimeName
    sandbox_ids: tuple[SandboxId, ...] = ()


class Tombstones:
    """Stores all tombstones, in memory and on disk: records of pods that must still be removed from a runtime."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: dict[tuple[PodUid, RuntimeName], Tombstone] = {}
        self._added = asyncio.Event()

    async def load(self) -> None:
        """Load the stored tombstones; if the database cannot be read now, log that and load none."""
        try:
            stones = await self._store.read(_select_all)
        except Unavailable as error:
            log.warning("Failed to read the tombstones", err=str(error))
            return
        for stone in stones:
            self._all.setdefault((stone.uid, stone.runtime), stone)

    @property
    def all(self) -> Mapping[tuple[PodUid, RuntimeName], Tombstone]:
        """Every tombstone, by pod UID and runtime; a live, read-only view."""
        return MappingProxyType(self._all)

    def of_runtime(self, runtime: str) -> tuple[Tombstone, ...]:
        """Return the tombstones of one runtime."""
        return tuple(stone for stone in self._all.values() if stone.runtime == runtime)

    async def wait_for(self, runtime: str) -> tuple[Tombstone, ...]:
        """Wait until the runtime has at least one tombstone; return all of its tombstones."""
        while not (stones := self.of_runtime(runtime)):
            self._added.clear()
            await self._added.wait()
        return stones

    async def add(self, stone: Tombstone) -> None:
        """Add a tombstone and write it to disk; if the database cannot be written now, it is written later."""
        self._all[stone.uid, stone.runtime] = stone
        self._added.set()
        try:
            await self._store.write(lambda connection: _insert(connection, stone))
        except Unavailable as error:
            log.warning("Failed to write a tombstone; trying again later", pod_uid=stone.uid, err=str(error))
            self._store.write_later(lambda connection: _insert(connection, stone))

    async def remove(self, uid: PodUid, runtime: RuntimeName) -> None:
        """Delete a tombstone; call this once nothing of the pod is left on the runtime."""
        if self._all.pop((uid, runtime), None) is not None:
            self._store.write_later(lambda connection: _delete(connection, uid, runtime))


def _insert(connection: Connection, stone: Tombstone) -> None:
    row = {"uid": stone.uid, "runtime": stone.runtime, "sandbox_ids": ",".join(stone.sandbox_ids)}
    connection.execute(_UPSERT, row)


def _delete(connection: Connection, uid: PodUid, runtime: RuntimeName) -> None:
    match = (TOMBSTONES.c.uid == uid) & (TOMBSTONES.c.runtime == runtime)
    connection.execute(delete(TOMBSTONES).where(match))


def _select_all(connection: Connection) -> list[Tombstone]:
    return read_rows(connection, select(TOMBSTONES), _from_row)


def _from_row(row: RowMapping) -> Tombstone:
    stone = Tombstone(
        uid=PodUid(row["uid"]),
        runtime=RuntimeName(row["runtime"]),
        sandbox_ids=tuple(
            SandboxId(sandbox_id) for sandbox_id in row["sandbox_ids"].split(",") if sandbox_id
        ),
    )
    return checked(stone)


async def clear_leftovers(
    handle: RuntimeHandle, tombstones: Tombstones, clock: Clock, *, on_cleared: Callable[[], None]
) -> None:
    """Remove what is left on a runtime of pods that were ended by force while it did not answer, until cancelled.

    Each of these pods has a tombstone in `tombstones`. Its sandboxes and containers are stopped and removed, then the
    tombstone. `on_cleared`: called after each removed tombstone, since a new pod with the same UID may wait for that.
    """
    backoff = Backoff(1.0, 60.0)
    while True:
        failed = False
        for stone in await tombstones.wait_for(handle.name):
            try:
                await _clear(handle, stone)
            except KubeletxError as error:
                failed = True
                log.debug("Failed to clear leftovers", runtime=handle.name, pod_uid=stone.uid, err=str(error))
                continue
            await tombstones.remove(stone.uid, handle.name)
            handle.forget(stone.uid)
            log.info(
                "Cleared leftovers of a pod that was ended by force", runtime=handle.name, pod_uid=stone.uid
            )
            on_cleared()
        if failed:
            await clock.sleep(backoff.next())
        else:
            backoff.reset()


async def _clear(handle: RuntimeHandle, stone: Tombstone) -> None:
    snapshot = await handle.look(stone.uid)
    for sandbox in snapshot.sandboxes:
        await handle.stop_sandbox(sandbox.id)
        await handle.remove_sandbox(sandbox.id)
    for unit in snapshot.units:
        # The removal of a sandbox removes its units too; these are units whose sandbox is gone.
        if all(unit.sandbox_id != sandbox.id for sandbox in snapshot.sandboxes):
            await handle.stop_unit(unit.id, 0)
            await handle.remove_unit(unit.id)
    # The tombstone is the only record of the leftovers, and a runtime may report success without a removal.
    left = await handle.look(stone.uid)
    if left.sandboxes or left.units:
        raise Conflict(f"runtime {handle.name} still shows what it reported as removed")
