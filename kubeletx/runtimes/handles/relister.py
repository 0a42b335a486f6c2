"""`Relister`: reads the state of one pod (`look`) or of all pods (`relist`) on a runtime into its `SnapshotTable`.

`look` lists the pod's sandboxes and units. Then it queries what lists do not show: the status of units that are new or
changed, and of a sandbox whose addresses are unknown. Such a status is newer than the list and replaces its entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletx.api import (
    Clock,
    NotFound,
    PodUid,
    SandboxId,
    SandboxStatus,
    SandboxSummary,
    UnitId,
    UnitStatus,
    UnitSummary,
    matching,
    names,
)
from kubeletx.api.counting import Durations

from .calls import BUCKETS
from .event_filter import EventFilter
from .snapshot_table import SnapshotTable
from .snapshots import PodSnapshot


class Queries(Protocol):
    """Methods of `kubeletx.api.Runtime` that read state; `RuntimeHandle` has them with deadlines and limits."""

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]: ...

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus: ...

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]: ...

    async def unit_status(self, unit_id: UnitId) -> UnitStatus: ...


class Relister:
    """Reads the state of the pods on one runtime.

    `queries`: makes the calls. `table`: gets the results. `match`: labels of all sandboxes and units of this agent.
    """

    def __init__(
        self,
        queries: Queries,
        *,
        table: SnapshotTable,
        events: EventFilter,
        match: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._queries = queries
        self._table = table
        self._events = events
        self._match = match
        self._clock = clock
        self._relist_began: float | None = None
        self.relists = Durations(BUCKETS)
        """Number and durations of the calls of `relist`."""
        self.relist_intervals = Durations(BUCKETS)
        """Number and lengths of the intervals between the beginnings of consecutive calls of `relist`."""

    async def look(self, uid: PodUid) -> PodSnapshot:
        """Read the state of one pod from the runtime now; return the new snapshot (empty if nothing is there).

        Raises KubeletxError if the runtime does not answer; then the old snapshot is kept.
        """
        began = self._clock.monotonic()
        match = {**self._match, names.POD_UID: str(uid)}
        sandboxes, units = await self._lists(match)
        asked = self._table.stale_units(uid, units)
        sandbox_id = self._table.wants_sandbox_status(uid, sandboxes)
        results = await asyncio.gather(
            *(self._status_or_none(unit_id) for unit_id in asked),
            self._sandbox_status_or_none(sandbox_id),
        )
        statuses = {s.summary.id: s for s in results if isinstance(s, UnitStatus)}
        sandbox_status = next((s for s in results if isinstance(s, SandboxStatus)), None)
        # A unit of the list without a status is kept: the caller looks again, and the next list decides.
        fresh = [_newer(u, statuses.get(u.id)) for u in units]
        return self._table.apply_look(
            uid, sandboxes, fresh, sandbox_status=sandbox_status, statuses=statuses, began=began
        )

    async def relist(self) -> set[PodUid]:
        """List all sandboxes and units of this agent on the runtime; return the UIDs of the pods that changed.

        Raises KubeletxError if the runtime does not answer; then all snapshots are kept.
        """
        began = self._clock.monotonic()
        if self._relist_began is not None:
            self.relist_intervals.add(began - self._relist_began)
        self._relist_began = began
        sandboxes, units = await self._lists(self._match)
        self.relists.add(self._clock.monotonic() - began)
        changed = self._table.apply_lists(sandboxes, units, began=began)
        if self._events.kept:
            for object_id in (*(s.id for s in sandboxes), *(u.id for u in units)):
                self._events.replay(object_id)
        return changed

    # --- private ---

    async def _lists(
        self, match: Mapping[str, str]
    ) -> tuple[Sequence[SandboxSummary], Sequence[UnitSummary]]:
        sandboxes, units = await asyncio.gather(
            self._queries.list_sandboxes(match), self._queries.list_units(match)
        )
        # In case the plugin returned sandboxes and units that do not match.
        return matching(sandboxes, match), matching(units, match)

    async def _status_or_none(self, unit_id: UnitId) -> UnitStatus | None:
        try:
            return await self._queries.unit_status(unit_id)
        except NotFound:
            return None

    async def _sandbox_status_or_none(self, sandbox_id: SandboxId | None) -> SandboxStatus | None:
        if sandbox_id is None:
            return None
        try:
            return await self._queries.sandbox_status(sandbox_id)
        except NotFound:
            return None


def _newer(unit: UnitSummary, status: UnitStatus | None) -> UnitSummary:
    """Return the summary in `status`, which was queried after the list; without a status, the summary of the list."""
    return status.summary if status is not None else unit
