"""Preemption: critical pods wait while other pods end for them (S8, A7 in docs/kubelet-parity.md).

    bind ─► no room ─► make_room: victims end, the room is reserved, the pod waits
      ▲                                        │
      └──── some pod has left its room ◄───────┘

Nothing of this is stored: after a restart of the agent the pod is refused and makes room again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from kubeletx.api import EventSink, ObjectRef, PodUid
from kubeletx.api.names import PREEMPTING, Event
from kubeletx.runtimes.handles.handle import RuntimeHandle

from .active_pods import ActivePods
from .admission import NodeAdmission
from .admission.counter import FreedRoom
from .admission.preemption import MESSAGE
from .counters import Counters
from .model.facts import DesiredPod, Rejection, Waiting
from .specs.labels import grace_seconds

log = structlog.get_logger(__name__)


class Preemption:
    """Ends pods to make room for critical ones, and keeps which critical pods wait for room."""

    def __init__(
        self, pods: ActivePods, admission: NodeAdmission, events: EventSink, counters: Counters
    ) -> None:
        self._pods = pods
        self._admission = admission
        self._events = events
        self._counters = counters
        self._waiting: dict[PodUid, Callable[[], None]] = {}

    def make_room(
        self,
        desired: DesiredPod,
        handle: RuntimeHandle,
        handler: str,
        refusal: Rejection,
        on_room: Callable[[], None],
    ) -> Waiting | Rejection:
        """End other pods for a critical one, and return what it waits for; or return its rejection.

        `refusal`: the reason the pod was not admitted, returned if the end of other pods cannot change it.
        `on_room`: called once any pod has left the node.
        """
        room = self._admission.make_room(
            desired, handle, handler, leaves=self._pods.is_ending, may_leave=self._pods.can_end
        )
        if not isinstance(room, FreedRoom):
            return room or refusal
        self._waiting[desired.uid] = on_room
        self._end_victims(room)
        names = ", ".join(sorted(room.awaited))
        return Waiting(
            reason=PREEMPTING, message=f"waits for {room.resource} until these have ended: {names}"
        )

    def left(self, uid: PodUid) -> None:
        """Stop counting a pod that left the node; pods that wait for room are tried again."""
        self._admission.release(uid)
        self._waiting.pop(uid, None)
        waiting, self._waiting = self._waiting, {}
        for on_room in waiting.values():  # later, so that the result of the pod's own step is applied first
            asyncio.get_running_loop().call_soon(on_room)

    def _end_victims(self, room: FreedRoom) -> None:
        for uid in room.victims:
            pod = self._pods.pod_of(uid)
            if pod is None or not self._pods.end(
                uid, grace_seconds=grace_seconds(pod), reason=PREEMPTING, message=MESSAGE
            ):
                continue
            ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(uid))
            self._events.record(ref, type="Warning", reason=Event.PREEMPTING, message=MESSAGE)
            self._counters.preemptions[room.resource] += 1
