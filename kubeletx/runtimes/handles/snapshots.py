"""`PodSnapshot`: the last known state of one pod on one runtime.

A snapshot shows what happened before `looked_at`, the monotonic time at which the read of the pod's state began.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import PodUid, SandboxStatus, SandboxSummary, UnitId, UnitStatus, UnitSummary


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a pod on one runtime.

    `sandboxes`, `units`: highest attempt first, then newest first; ended ones included. A unit is a container or
    virtual machine. `sandbox_status`: full status of `sandboxes[0]`; None if unknown. `statuses`: full status by unit
    id; a unit that a list showed as new or changed has none until the next `RuntimeHandle.look`.
    """

    uid: PodUid
    sandboxes: tuple[SandboxSummary, ...] = ()
    units: tuple[UnitSummary, ...] = ()
    sandbox_status: SandboxStatus | None = None
    statuses: dict[UnitId, UnitStatus] = {}
    looked_at: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.sandboxes and not self.units

    def units_named(self, name: str) -> tuple[UnitSummary, ...]:
        """Return all units with this container name, newest first."""
        return tuple(u for u in self.units if u.name == name)

    def status_of(self, unit_id: UnitId) -> UnitStatus | None:
        """Return the unit's full status; None if it was not queried yet."""
        return self.statuses.get(unit_id)
