"""Runtime events that no look has shown yet (rule 9 of docs/architecture.md). Pure.

containerd's CRI status can lag behind its own exit event, so one look may be too early. An event is settled
when the snapshot shows at least its change, or when a look that began after the event does not show the
object at all. Until then looks repeat, 10 ms to 10 s apart; after that only the slow relist remains.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import EventKind, RuntimeEvent, SandboxState, UnitState
from kubeletx.runtimes.handles.snapshots import PodSnapshot

FIRST_DELAY_SECONDS = 0.01
LAST_DELAY_SECONDS = 10.0
MOST_PENDING = 64


class PendingEvent(msgspec.Struct, frozen=True):
    """One event of a runtime, with the monotonic time of its arrival."""

    event: RuntimeEvent
    at: float


class PendingEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events that no look has shown yet, and the delay before the next look."""

    open: tuple[PendingEvent, ...] = ()
    delay_seconds: float = 0.0

    def add(self, event: RuntimeEvent, at: float) -> PendingEvents:
        """Return a copy with the event added and no delay, so that the next look comes at once."""
        return PendingEvents(open=(*self.open[-MOST_PENDING + 1 :], PendingEvent(event, at)))

    def after(self, snapshot: PodSnapshot | None) -> PendingEvents:
        """Return a copy without the events that this snapshot shows; None shows none."""
        if snapshot is None or not self.open:
            return self
        left = tuple(pending_event for pending_event in self.open if not is_settled(pending_event, snapshot))
        return msgspec.structs.replace(self, open=left) if left else PendingEvents()

    def later(self) -> PendingEvents:
        """Return a copy with twice the delay, after a look that did not show every event.

        Without events once the delay exceeds `LAST_DELAY_SECONDS`.
        """
        delay = max(self.delay_seconds * 2, FIRST_DELAY_SECONDS)
        if delay > LAST_DELAY_SECONDS:
            return PendingEvents()
        return msgspec.structs.replace(self, delay_seconds=delay)


def is_settled(pending_event: PendingEvent, snapshot: PodSnapshot) -> bool:
    """Return True if the snapshot shows the event's change, or that its object is gone."""
    event, looked_since = pending_event.event, snapshot.looked_at > pending_event.at
    if event.kind in (EventKind.OOM, EventKind.CHANGED, EventKind.RESYNC):
        return looked_since
    if event.unit_id is not None:
        unit = next((u for u in snapshot.units if u.id == event.unit_id), None)
        if unit is None:
            return looked_since or event.kind is EventKind.DELETED
        match event.kind:
            case EventKind.CREATED:
                return True
            case EventKind.STARTED:
                return unit.state is not UnitState.CREATED
            case EventKind.STOPPED:
                return unit.state is UnitState.EXITED
        return False
    sandbox = next((s for s in snapshot.sandboxes if s.id == event.sandbox_id), None)
    if sandbox is None:
        return looked_since or event.kind is EventKind.DELETED
    if event.kind is EventKind.STOPPED:
        return sandbox.state is SandboxState.NOT_READY
    return event.kind is not EventKind.DELETED
