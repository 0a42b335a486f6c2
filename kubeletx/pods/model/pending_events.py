"""Runtime events whose change is not visible in the runtime's reported state yet (docs/architecture.md, rule 9).

containerd's CRI status can lag behind its own exit event, so one query after the event may be too early. An event
is settled when a snapshot of the pod shows its change, or when a query that began after the event does not show
the object at all. Until then the query is repeated, 10 ms to 10 s apart. After that only the periodic relist of all
pods can show the change. Pure.
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
    """Runtime events of one pod whose change is not visible in the runtime's reported state yet (`open`).

    `delay_seconds`: delay before the next query of the runtime.
    """

    open: tuple[PendingEvent, ...] = ()
    delay_seconds: float = 0.0

    def add(self, event: RuntimeEvent, at: float) -> PendingEvents:
        """Return a copy with the event added and without delay, so that the runtime is queried at once.

        `at`: monotonic time at which the event arrived. Only the newest `MOST_PENDING` events are kept.
        """
        return PendingEvents(open=(*self.open[-MOST_PENDING + 1 :], PendingEvent(event, at)))

    def after(self, snapshot: PodSnapshot | None) -> PendingEvents:
        """Return a copy without the events whose change this snapshot of the pod shows; None shows none."""
        if snapshot is None or not self.open:
            return self
        left = tuple(pending_event for pending_event in self.open if not is_settled(pending_event, snapshot))
        return msgspec.structs.replace(self, open=left) if left else PendingEvents()

    def later(self) -> PendingEvents:
        """Return a copy with twice the delay, for use after a query that did not show the changes of all events.

        If the delay would exceed `LAST_DELAY_SECONDS`, all events are dropped instead.
        """
        delay = max(self.delay_seconds * 2, FIRST_DELAY_SECONDS)
        if delay > LAST_DELAY_SECONDS:
            return PendingEvents()
        return msgspec.structs.replace(self, delay_seconds=delay)


def is_settled(pending_event: PendingEvent, snapshot: PodSnapshot) -> bool:
    """Return True if the snapshot shows the event's change, or does not show the event's object any more."""
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
