"""Preemption: critical pods wait while other pods end for them (S8, A7 in docs/kubelet-parity.md).

    bind ─► does not fit ─► make_room: victims end, their resources are reserved, the pod waits
      ▲                                        │
      └──── some pod has left the node ◄───────┘

Nothing of this is stored. After a restart of the agent the critical pod goes through admission again, and if it still
does not fit, victims are chosen again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from kubeletx.api import EventSink, PodUid, Traits
from kubeletx.api.names import PREEMPTING, Event

from .active_pods import ActivePods
from .admission import NodeAdmission
from .admission.counter import FreedRoom
from .admission.preemption import MESSAGE
from .counters import Counters
from .model.facts import DesiredPod, Rejection, Waiting
from .model.roles import pod_ref
from .specs.labels import grace_seconds

log = structlog.get_logger(__name__)


class Preemption:
    """Ends pods so that critical ones fit, and remembers which critical pods wait for that."""

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
        traits: Traits | None,
        refusal: Rejection,
        on_room: Callable[[], None],
    ) -> Waiting | Rejection:
        """End other pods so that a critical pod fits; return what it waits for, or its rejection.

        `refusal`: the rejection by admission; it is returned if the pod is not critical or is not short of a resource.
        `on_room`: called once, as soon as any pod has left the node; the critical pod must then be tried again.
        """
        room = self._admission.make_room(
            desired, traits, leaves=self._pods.is_ending, may_leave=self._pods.can_end
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
        """Free the resources of a pod that left the node, and try the waiting critical pods again."""
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
            self._events.record(pod_ref(pod), type="Warning", reason=Event.PREEMPTING, message=MESSAGE)
            self._counters.preemptions[room.resource] += 1
