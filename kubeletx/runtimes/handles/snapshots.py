"""`PodSnapshot`: the last known state of one pod on one runtime.

A snapshot counts only for what happened before `looked_at`, the monotonic time at which the look began.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import PodUid, SandboxStatus, SandboxSummary, UnitId, UnitStatus, UnitSummary


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a pod. `sandboxes` and `units`: highest attempt first, then newest first; ended ones included.

    `sandbox_status` belongs to `sandboxes[0]`. `statuses` may lack units that a look did not need to query (their
    summary did not change) only until the next full look.
    """

    uid: PodUid
    sandboxes: tuple[SandboxSummary, ...] = ()
    units: tuple[UnitSummary, ...] = ()
    sandbox_status: SandboxStatus | None = None
    statuses: dict[UnitId, UnitStatus] = {}
    looked_at: float = 0.0

    @property
    def is_empty(self) -> bool:
        """True if nothing of the pod is on the runtime."""
        return not self.sandboxes and not self.units

    def units_named(self, name: str) -> tuple[UnitSummary, ...]:
        """All units of one container name, newest first."""
        return tuple(u for u in self.units if u.name == name)

    def status_of(self, unit_id: UnitId) -> UnitStatus | None:
        """The full status; None if no look queried it."""
        return self.statuses.get(unit_id)
