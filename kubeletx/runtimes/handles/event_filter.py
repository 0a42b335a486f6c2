"""`EventFilter`: passes on those events of a runtime that are new to the agent, with the UID of their pod.

Most events are caused by the agent's own calls. An event is new only if neither the pod's snapshot nor such a call
explains it. An event that a running call explains is held until the call returns. If the call succeeded, the event is
dropped, since the caller updates the snapshot. If it failed, the event is processed like any other. Events of unknown
object ids are kept for a while, since the call that creates the object may not have returned yet, and are processed
once the id is known. Events of objects of other agents are kept and dropped in the same way.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator

from kubeletx.api import EventKind, PodUid, RuntimeEvent, SandboxState, UnitId

from .snapshot_table import SnapshotTable

Emit = Callable[[PodUid, RuntimeEvent], None]

KEPT_EVENTS = 4096
KEPT_SECONDS = 300.0
CHANGE_SECONDS = 5.0
"""Seconds after a call of this agent in which a Changed event counts as its effect; a runtime need not send one."""
_NOTHING: tuple[tuple[EventKind, ...], list[RuntimeEvent]] = ((), [])


class EventFilter:
    """Passes on those events of one runtime that neither the snapshots nor the agent's own calls explain.

    `table`: snapshots of the runtime's pods. `emit`: called with each of these events. `now`: returns the monotonic
    time.
    """

    def __init__(self, table: SnapshotTable, emit: Emit, now: Callable[[], float]) -> None:
        self._table = table
        self._emit = emit
        self._now = now
        self._creating: Counter[PodUid] = Counter()
        self._acting: dict[str, tuple[tuple[EventKind, ...], list[RuntimeEvent]]] = {}
        self._expected: OrderedDict[str, dict[EventKind, float]] = OrderedDict()
        self._unknown: OrderedDict[str, list[tuple[float, RuntimeEvent]]] = OrderedDict()
        self._kept = 0

    @property
    def kept(self) -> int:
        return self._kept

    def take(self, event: RuntimeEvent) -> None:
        """Process one event of the runtime (any kind but RESYNC): pass it to `emit`, drop it, or keep it for later."""
        object_id = event.unit_id or event.sandbox_id
        if object_id is None:
            if event.uid is not None and self._table.find(event.uid) is not None:
                self._emit(event.uid, event)
            return
        uid = self._table.owner_of(object_id)
        if uid is not None:
            self._judge(object_id, uid, event)
        elif self._table.is_gone(object_id):
            return
        elif (
            event.uid is not None
            # While a create call runs, the id may be its result, which the agent does not have yet.
            and not self._creating[event.uid]
            and self._table.find(event.uid) is not None
        ):
            if event.kind is not EventKind.DELETED:
                self._emit(event.uid, event)
        else:
            self._keep(object_id, event)

    def begin_create(self, uid: PodUid) -> None:
        """Record that a create call for the pod runs; events of unknown ids of this pod are kept until it ends."""
        self._creating[uid] += 1

    def end_create(self, uid: PodUid) -> None:
        """Record the end of a create call for the pod, successful or not."""
        self._creating[uid] -= 1
        if self._creating[uid] <= 0:
            del self._creating[uid]

    @contextlib.contextmanager
    def acting(self, object_ids: Iterable[str], *kinds: EventKind) -> Iterator[None]:
        """Context around a call of this agent that is expected to cause events of `kinds` for the objects.

        These events are held inside the context. If the call succeeds, they are dropped; if it raises, they are
        processed like any others. Two calls for the same object may overlap, such as a stop and a second stop with a
        shorter grace period: they share the held events, and the call that ends first decides about them.
        """
        ids = tuple(object_ids)
        for object_id in ids:
            _, held = self._acting.get(object_id, _NOTHING)
            self._acting[object_id] = (kinds, list(held))
        try:
            yield
        except BaseException:
            for object_id in ids:
                for event in self._acting.pop(object_id, _NOTHING)[1]:
                    self.take(event)
            raise
        for object_id in ids:
            _, held = self._acting.pop(object_id, _NOTHING)
            # The events arrived during the call, so no further ones are expected.
            if held:
                continue
            if EventKind.STARTED in kinds:
                self.expect(object_id, EventKind.STARTED)
            elif EventKind.CHANGED in kinds:
                self.expect(object_id, EventKind.CHANGED, seconds=CHANGE_SECONDS)

    def expect(self, object_id: str, *kinds: EventKind, seconds: float = math.inf) -> None:
        """Ignore the next event of each kind for this object, because a call of this agent causes it.

        `seconds`: time after which an event of the kind is not ignored any more.
        """
        until = self._now() + seconds
        self._expected.setdefault(object_id, {}).update(dict.fromkeys(kinds, until))
        if len(self._expected) > KEPT_EVENTS:  # events that this runtime never sends
            self._expected.popitem(last=False)

    def unexpect(self, object_id: str) -> None:
        """Undo every `expect` for an object that is gone."""
        self._expected.pop(object_id, None)

    def replay(self, object_id: str) -> None:
        """Process the events that were kept for this object id; call it once the pod of the id is known."""
        for _, event in self._unknown.pop(object_id, ()):
            self._kept -= 1
            self.take(event)

    def shows(self, uid: PodUid, event: RuntimeEvent) -> bool:
        """Return True if the pod's last snapshot already contains the change that the event reports.

        Always False for OOM, CHANGED and RESYNC, which a snapshot cannot show.
        """
        snapshot = self._table.find(uid)
        if event.kind in (EventKind.OOM, EventKind.CHANGED, EventKind.RESYNC):
            return False
        if event.unit_id is not None:
            unit = next((u for u in snapshot.units if u.id == event.unit_id), None) if snapshot else None
            if unit is None:
                return event.kind is EventKind.DELETED or self._table.is_gone(event.unit_id)
            match event.kind:
                case EventKind.CREATED:
                    return True
                case EventKind.STARTED:
                    return unit.state.is_alive
                case EventKind.STOPPED:
                    return not unit.state.is_alive and unit.state.value == "exited"
            return False
        sandbox = (
            next((s for s in snapshot.sandboxes if s.id == event.sandbox_id), None) if snapshot else None
        )
        if sandbox is None:
            return event.kind is EventKind.DELETED or self._table.is_gone(event.sandbox_id or "")
        if event.kind is EventKind.STOPPED:
            return sandbox.state is SandboxState.NOT_READY
        return event.kind is not EventKind.DELETED and sandbox.state is SandboxState.READY

    def _judge(self, object_id: str, uid: PodUid, event: RuntimeEvent) -> None:
        kinds, held = self._acting.get(object_id, _NOTHING)
        if event.kind in kinds:
            held.append(event)
            return
        expected = self._expected.get(object_id)
        if expected is not None and event.kind in expected:
            until = expected.pop(event.kind)
            if not expected:
                del self._expected[object_id]
            if self._now() <= until:
                return
        if event.kind in (EventKind.OOM, EventKind.CHANGED) and event.unit_id is not None:
            self._table.mark_stale(UnitId(event.unit_id), at=self._now())
        if not self.shows(uid, event):
            self._emit(uid, event)

    def _keep(self, object_id: str, event: RuntimeEvent) -> None:
        now = self._now()
        self._unknown.setdefault(object_id, []).append((now, event))
        self._kept += 1
        while self._unknown:
            oldest = next(iter(self._unknown))
            is_old = self._unknown[oldest][0][0] < now - KEPT_SECONDS
            if self._kept <= KEPT_EVENTS and not is_old:
                return
            self._kept -= len(self._unknown.pop(oldest))
