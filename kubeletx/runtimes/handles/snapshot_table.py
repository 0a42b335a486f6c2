"""`SnapshotTable`: the last known state of each pod on one runtime, without any I/O.

Three things change it: a look (a read of one pod's state), a list of all pods, and notes (results of the agent's own
calls). A look or list shows what happened before it began: it does not undo a later note or removal, and an older look
never replaces a newer one. If the runtime does not answer, everything stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from kubeletx.api import (
    PodUid,
    SandboxId,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)

from .snapshots import PodSnapshot

_REMEMBER_GONE_SECONDS = 300.0


class SnapshotTable:
    """Holds the snapshots of all pods on one runtime, and the pod UID of each sandbox and unit id."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, PodSnapshot] = {}
        self._owners: dict[str, PodUid] = {}
        self._began: dict[PodUid, float] = {}
        self._noted: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._stale: dict[str, float] = {}
        self._listed_at = 0.0
        self.lost_at = -math.inf
        """Monotonic begin of the last look or list that lacked a known object which this agent had not removed."""

    def looked_at(self, uid: PodUid) -> float:
        """Return the monotonic time at which the newest look at the pod, or list of all pods, began; 0 before any."""
        return max(self._began.get(uid, 0.0), self._listed_at)

    @property
    def pods(self) -> Mapping[PodUid, PodSnapshot]:
        """Snapshot of every pod that has a sandbox or unit on the runtime; a live, read-only view."""
        return MappingProxyType(self._pods)

    def find(self, uid: PodUid) -> PodSnapshot | None:
        """Return the pod's last snapshot; None if nothing of the pod is known on the runtime."""
        return self._pods.get(uid)

    def owner_of(self, object_id: str) -> PodUid | None:
        """Return the UID of the pod of this sandbox or unit; None if the id is unknown."""
        return self._owners.get(object_id)

    def is_gone(self, object_id: str) -> bool:
        """Return True if this agent removed the object recently."""
        return object_id in self._gone

    def units_in(self, sandbox_id: SandboxId) -> tuple[UnitId, ...]:
        """Return the ids of the known units of one sandbox."""
        uid = self._owners.get(sandbox_id)
        snapshot = self._pods.get(uid) if uid is not None else None
        if snapshot is None:
            return ()
        return tuple(unit.id for unit in snapshot.units if unit.sandbox_id == sandbox_id)

    def own(self, object_id: str, uid: PodUid) -> None:
        """Record the pod of a sandbox or unit that was just created, before a look shows it."""
        self._owners[object_id] = uid

    def mark_stale(self, unit_id: UnitId, *, at: float) -> None:
        """Make looks query the unit's status even if its state is unchanged, up to the first that began after `at`.

        `at`: monotonic time of the event that changed the status.
        """
        self._stale[unit_id] = at

    # --- which statuses to query ---

    def stale_units(self, uid: PodUid, units: Iterable[UnitSummary]) -> list[UnitId]:
        """Return the ids of those `units`, as newly listed, whose full status has to be queried.

        These are units whose known status is missing, is marked as stale, or has another state than the list, and units
        whose state is unknown.
        """
        old = self._pods.get(uid)
        known = old.statuses if old is not None else {}
        return [unit.id for unit in units if not self._is_current(known.get(unit.id), unit)]

    def wants_sandbox_status(self, uid: PodUid, sandboxes: Iterable[SandboxSummary]) -> SandboxId | None:
        """Return the id of the newest of `sandboxes`, as newly listed, if its status has to be queried, else None.

        It has to be queried if the sandbox is ready and its addresses are not known yet.
        """
        newest = max(sandboxes, key=_sandbox_order, default=None)
        if newest is None or newest.state is not SandboxState.READY:
            return None
        old = self._pods.get(uid)
        status = old.sandbox_status if old is not None else None
        known = (
            status is not None
            and status.summary.id == newest.id
            and status.summary.state is newest.state
            and (bool(status.ips) or status.host_network)
        )
        return None if known else newest.id

    # --- looks ---

    def apply_look(
        self,
        uid: PodUid,
        sandboxes: Sequence[SandboxSummary],
        units: Sequence[UnitSummary],
        *,
        sandbox_status: SandboxStatus | None,
        statuses: Mapping[UnitId, UnitStatus],
        began: float,
    ) -> PodSnapshot:
        """Store the result of a look at one pod and return the pod's snapshot.

        `sandboxes`, `units`: the pod's lists. `sandbox_status`, `statuses`: what was queried in addition. `began`:
        monotonic time at which the look began; a look that began before the last stored one is ignored.
        """
        if began < self._began.get(uid, 0.0):
            # Looks run concurrently and may end in another order than they began; an older one must not undo a newer.
            return self._pods.get(uid) or PodSnapshot(uid=uid, looked_at=self._began[uid])
        for unit_id, status in statuses.items():
            # A later event may have changed the status after the runtime returned it.
            if status.summary.id == unit_id and self._stale.get(unit_id, math.inf) < began:
                del self._stale[unit_id]
        return self._apply(uid, sandboxes, units, sandbox_status, statuses, began)

    def apply_lists(
        self, sandboxes: Iterable[SandboxSummary], units: Iterable[UnitSummary], *, began: float
    ) -> set[PodUid]:
        """Store a list of all sandboxes and units; return the UIDs of the pods of which ids or states changed.

        `began`: monotonic time at which the list began.
        """
        by_pod: dict[PodUid, tuple[list[SandboxSummary], list[UnitSummary]]] = {}
        for sandbox in sandboxes:
            by_pod.setdefault(sandbox.uid, ([], []))[0].append(sandbox)
        for unit in units:
            by_pod.setdefault(unit.uid, ([], []))[1].append(unit)
        changed: set[PodUid] = set()
        # Also pods that the lists lack: they have vanished from the runtime.
        for uid in {**by_pod, **self._pods}:
            if began < self._began.get(uid, 0.0):
                continue
            mine = by_pod.get(uid, ([], []))
            old = self._pods.get(uid)
            before = _marks_of(old)
            if old is not None and before == _marks(*mine):
                continue
            if before != _marks_of(self._apply(uid, *mine, None, {}, began)):
                changed.add(uid)
        self._listed_at = max(self._listed_at, began)
        self._forget_old(began)
        return changed

    # --- notes: results of the agent's own calls ---

    def note_sandbox(self, status: SandboxStatus, *, at: float) -> PodSnapshot:
        """Store a sandbox that a call of this agent created or queried at monotonic time `at`; return the snapshot."""
        uid = status.summary.uid
        old = self._pods.get(uid) or PodSnapshot(uid=uid, looked_at=self._began.get(uid, 0.0))
        others = (s for s in old.sandboxes if s.id != status.summary.id)
        sandboxes = tuple(sorted((status.summary, *others), key=_sandbox_order, reverse=True))
        newest = status if sandboxes[0].id == status.summary.id else old.sandbox_status
        return self._keep_noted(
            status.summary.id,
            at,
            msgspec.structs.replace(old, sandboxes=sandboxes, sandbox_status=newest),
        )

    def note_unit(self, status: UnitStatus, *, at: float) -> PodSnapshot:
        """Store a unit that a call of this agent changed or queried at monotonic time `at`; return the snapshot."""
        uid = status.summary.uid
        old = self._pods.get(uid) or PodSnapshot(uid=uid, looked_at=self._began.get(uid, 0.0))
        others = (u for u in old.units if u.id != status.summary.id)
        units = tuple(sorted((status.summary, *others), key=_unit_order, reverse=True))
        statuses = {**old.statuses, status.summary.id: status}
        return self._keep_noted(
            status.summary.id, at, msgspec.structs.replace(old, units=units, statuses=statuses)
        )

    def note_removed(self, object_id: str, *, at: float) -> None:
        """Remove a sandbox (with all its units) or a unit from the snapshot.

        `at`: monotonic time at which the call that removed it had returned; a list that began then or later shows it
        again if it still exists.
        """
        uid = self._owners.get(object_id)
        old = self._pods.get(uid) if uid is not None else None
        gone = {object_id}
        if old is not None:
            gone |= {u.id for u in old.units if u.sandbox_id == object_id}
        for gone_id in gone:
            # Kept for a while: a list that began before the removal still shows the object.
            self._gone[gone_id] = at
            self._owners.pop(gone_id, None)
            self._noted.pop(gone_id, None)
            self._stale.pop(gone_id, None)
        if old is not None:
            self._store(_without(old, gone))

    def forget(self, uid: PodUid) -> None:
        """Drop everything about a pod that has ended."""
        old = self._pods.pop(uid, None)
        self._began.pop(uid, None)
        if old is not None:
            self._disown(old, ())

    # --- private ---

    def _apply(
        self,
        uid: PodUid,
        sandboxes: Sequence[SandboxSummary],
        units: Sequence[UnitSummary],
        sandbox_status: SandboxStatus | None,
        fresh: Mapping[UnitId, UnitStatus],
        began: float,
    ) -> PodSnapshot:
        old = self._pods.get(uid) or PodSnapshot(uid=uid)
        kept_sandboxes = self._merge_sandboxes(old, sandboxes, began)
        kept_units = self._merge_units(old, units, began)
        statuses: dict[UnitId, UnitStatus] = {}
        for unit in kept_units:
            for candidate in (fresh.get(unit.id), old.statuses.get(unit.id)):
                # A status of another state is from before the list: its exit code or times would not belong
                # to this state.
                if candidate is not None and candidate.summary.state is unit.state:
                    statuses[unit.id] = candidate
                    break
        snapshot = PodSnapshot(
            uid=uid,
            sandboxes=kept_sandboxes,
            units=kept_units,
            sandbox_status=_newest_status(kept_sandboxes, sandbox_status, old.sandbox_status),
            statuses=statuses,
            looked_at=began,
        )
        kept = frozenset(_ids(kept_sandboxes, kept_units))
        if not kept.issuperset(_ids(old.sandboxes, old.units)):
            self.lost_at = began
        self._disown(old, kept)
        self._began[uid] = began
        self._store(snapshot)
        return snapshot

    def _merge_sandboxes(
        self, old: PodSnapshot, listed: Sequence[SandboxSummary], began: float
    ) -> tuple[SandboxSummary, ...]:
        by_id = {s.id: s for s in listed if self._gone.get(s.id, -1.0) <= began}
        for sandbox in old.sandboxes:
            if self._noted.get(sandbox.id, -1.0) < began:
                continue
            other = by_id.get(sandbox.id)
            if other is None or other.state is SandboxState.READY:
                by_id[sandbox.id] = sandbox
        self._settle_notes((s.id for s in (*old.sandboxes, *listed)), began)
        return tuple(sorted(by_id.values(), key=_sandbox_order, reverse=True))

    def _merge_units(
        self, old: PodSnapshot, listed: Sequence[UnitSummary], began: float
    ) -> tuple[UnitSummary, ...]:
        by_id = {u.id: u for u in listed if self._gone.get(u.id, -1.0) <= began}
        for unit in old.units:
            if self._noted.get(unit.id, -1.0) < began:
                continue
            other = by_id.get(unit.id)
            if other is None or other.state is not UnitState.EXITED:
                by_id[unit.id] = unit
        self._settle_notes((u.id for u in (*old.units, *listed)), began)
        return tuple(sorted(by_id.values(), key=_unit_order, reverse=True))

    def _settle_notes(self, ids: Iterable[str], began: float) -> None:
        for object_id in ids:
            if self._noted.get(object_id, began) < began:
                del self._noted[object_id]

    def _keep_noted(self, object_id: str, at: float, snapshot: PodSnapshot) -> PodSnapshot:
        self._noted[object_id] = at
        self._gone.pop(object_id, None)
        self._store(snapshot)
        return snapshot

    def _store(self, snapshot: PodSnapshot) -> None:
        if snapshot.is_empty:
            self._pods.pop(snapshot.uid, None)
            return
        self._pods[snapshot.uid] = snapshot
        for object_id in _ids(snapshot.sandboxes, snapshot.units):
            self._owners[object_id] = snapshot.uid

    def _disown(self, old: PodSnapshot, kept: Iterable[str]) -> None:
        keep = set(kept)
        for object_id in _ids(old.sandboxes, old.units):
            if object_id not in keep:
                self._owners.pop(object_id, None)
                self._stale.pop(object_id, None)
                self._noted.pop(object_id, None)

    def _forget_old(self, began: float) -> None:
        horizon = began - _REMEMBER_GONE_SECONDS
        for object_id in [i for i, at in self._gone.items() if at < horizon]:
            del self._gone[object_id]
        for uid in [u for u, at in self._began.items() if at < horizon and u not in self._pods]:
            del self._began[uid]  # a later list has covered the pod

    def _is_current(self, status: UnitStatus | None, unit: UnitSummary) -> bool:
        return (
            status is not None
            and status.summary.state is unit.state
            and unit.state is not UnitState.UNKNOWN
            and unit.id not in self._stale
        )


def _sandbox_order(sandbox: SandboxSummary) -> tuple[int, int, str]:
    return sandbox.attempt, sandbox.created_at_ns, sandbox.id


def _unit_order(unit: UnitSummary) -> tuple[int, int, str]:
    return unit.attempt, unit.created_at_ns, unit.id


Marks = frozenset[tuple[str, SandboxState | UnitState]]


def _ids(sandboxes: Iterable[SandboxSummary], units: Iterable[UnitSummary]) -> list[str]:
    return [*(s.id for s in sandboxes), *(u.id for u in units)]


def _marks(sandboxes: Iterable[SandboxSummary], units: Iterable[UnitSummary]) -> Marks:
    return frozenset([*((s.id, s.state) for s in sandboxes), *((u.id, u.state) for u in units)])


def _marks_of(snapshot: PodSnapshot | None) -> Marks:
    return frozenset() if snapshot is None else _marks(snapshot.sandboxes, snapshot.units)


def _newest_status(
    sandboxes: tuple[SandboxSummary, ...], fresh: SandboxStatus | None, old: SandboxStatus | None
) -> SandboxStatus | None:
    """Return the status of the newest sandbox; None if it was not queried.

    A sandbox that is not ready any more keeps its last known addresses.
    """
    if not sandboxes:
        return None
    for status in (fresh, old):
        if status is not None and status.summary.id == sandboxes[0].id:
            if status.summary.state is sandboxes[0].state:
                return status
            return msgspec.structs.replace(status, summary=sandboxes[0])
    return None


def _without(old: PodSnapshot, gone: set[str]) -> PodSnapshot:
    sandboxes = tuple(s for s in old.sandboxes if s.id not in gone)
    return msgspec.structs.replace(
        old,
        sandboxes=sandboxes,
        units=tuple(u for u in old.units if u.id not in gone),
        statuses={unit_id: status for unit_id, status in old.statuses.items() if unit_id not in gone},
        sandbox_status=_newest_status(sandboxes, None, old.sandbox_status),
    )
