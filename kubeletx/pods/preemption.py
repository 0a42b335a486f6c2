"""Critical pods that wait for room, and the pods that make way for them (S8, A7).

    bind ─► no room ─► make_room: victims end, the room is reserved, the pod waits
      ▲                                        │
      └──── some pod has left its room ◄───────┘

Nothing of this outlives the agent: after a restart the pod asks for room again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from kubeletx.api import EventSink, ObjectRef, PodUid
from kubeletx.api.names import PREEMPTING, Event
from kubeletx.kube.types.core import Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle

from .admission.counter import Room
from .admission.preemption import MESSAGE
from .counters import Counters
from .dependencies import Admission
from .model.facts import Rejection, Waiting
from .specs.labels import grace_seconds
from .worker import PodWorker

log = structlog.get_logger(__name__)


class Tenants(Protocol):
    """Who runs here (`PodManager`)."""

    def pod_of(self, uid: PodUid) -> Pod | None:
        """The newest spec of a pod that is here."""
        ...

    def can_end(self, uid: PodUid) -> bool:
        """Whether the pod has no runtime yet, or one that would hear of its end now."""
        ...

    def is_ending(self, uid: PodUid) -> bool:
        """Whether the pod is ending, and its runtime, if it has one, hears of it."""
        ...

    def end(self, uid: PodUid, *, grace_seconds: int, reason: str, message: str) -> bool:
        """End the pod as Failed; False: it is gone, ending or ended already."""
        ...


class Preemption:
    """One for all pods of the node. `tenants` is set by their manager."""

    def __init__(self, admission: Admission, events: EventSink, counters: Counters) -> None:
        self.tenants: Tenants | None = None
        self._admission = admission
        self._events = events
        self._counters = counters
        self._waiting: dict[PodUid, PodWorker] = {}

    def make_room(
        self, worker: PodWorker, handle: RuntimeHandle, handler: str, refusal: Rejection
    ) -> Waiting | Rejection:
        """What becomes of a pod that was not admitted, in the words for its status. `refusal`: why it was not."""
        tenants = self.tenants
        if tenants is None:
            return refusal
        room = self._admission.make_room(
            worker.desired, handle, handler, leaves=tenants.is_ending, may_leave=tenants.can_end
        )
        if not isinstance(room, Room):
            return room or refusal
        self._waiting[worker.uid] = worker
        self._end_victims(tenants, room)
        names = ", ".join(sorted(room.awaited))
        return Waiting(
            reason=PREEMPTING, message=f"waits for {room.resource} until these have ended: {names}"
        )

    def left(self, uid: PodUid) -> None:
        """The pod takes nothing of the node any more: those who wait for room ask again."""
        self._admission.release(uid)
        self._waiting.pop(uid, None)
        waiting, self._waiting = self._waiting, {}
        for worker in waiting.values():  # after what its own step, perhaps just done, says of it
            asyncio.get_running_loop().call_soon(worker.runtime_changed)

    def _end_victims(self, tenants: Tenants, room: Room) -> None:
        for uid in room.victims:
            pod = tenants.pod_of(uid)
            if pod is None or not tenants.end(
                uid, grace_seconds=grace_seconds(pod), reason=PREEMPTING, message=MESSAGE
            ):
                continue
            ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(uid))
            self._events.record(ref, type="Warning", reason=Event.PREEMPTING, message=MESSAGE)
            self._counters.preemptions[room.resource] += 1
