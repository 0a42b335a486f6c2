"""Ended and refused pods and sessions are kept for ten minutes, since cores may ask about them."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from kubeletx.api import Clock, KubeletxError
from kubeletx.api.errors import row_of

from ..stubs import fornax_session_pb2 as fs
from ..stubs import fornaxcore_pb2 as pb
from ..stubs import k8s_core_v1_pb2 as core
from ..wire import shortened
from .reports import FAILED, CorePodView, PodReport

KEEP_SECONDS: Final = 600.0
KEEP_MOST: Final = 2000
KEEP_BYTES: Final = 64 << 10
"""Of a larger pod or session that was refused, only the name is kept."""
T = TypeVar("T")


class Recent(Generic[T]):
    """Values by identifier, the oldest first; old ones and those above `KEEP_MOST` are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, T]] = {}

    def put(self, identifier: str, value: T) -> None:
        now = self._clock.monotonic()
        self._kept.pop(identifier, None)
        self._kept[identifier] = (now, value)
        while True:
            oldest, (put_at, _) = next(iter(self._kept.items()))
            if len(self._kept) <= KEEP_MOST and put_at >= now - KEEP_SECONDS:
                return
            del self._kept[oldest]

    def find(self, identifier: str) -> T | None:
        found = self._kept.get(identifier)
        return found[1] if found is not None else None

    def forget(self, identifier: str) -> None:
        self._kept.pop(identifier, None)

    def clear(self) -> None:
        self._kept.clear()

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._kept


class EndedPod(msgspec.Struct, frozen=True):
    """A pod as it was last reported. `uid`: as the core gave it; empty if it gave none, or if the pod was refused."""

    report: PodReport
    view: CorePodView
    uid: str


class EndedPods(Recent[EndedPod]):
    """Pods that are not on this node any more, or never were, by identifier."""

    def __init__(self, clock: Clock, node: str) -> None:
        """`node`: identifier of this node."""
        super().__init__(clock)
        self._node = node

    def refuse(self, create: pb.PodCreate, error: KubeletxError) -> None:
        """Keep a pod that is not run. It is over, and Failed: its core does not wait for it."""
        reason = error.reason or row_of(error).event_reason
        text = shortened(str(error))
        view = CorePodView(state=pb.PodState.Terminated, phase=FAILED, reason=reason, message=text)
        pod = create.pod
        if pod.ByteSize() > KEEP_BYTES:
            pod = core.Pod()
            pod.metadata.namespace, _, pod.metadata.name = create.podIdentifier.partition("/")
        self.put(create.podIdentifier, EndedPod(PodReport(pod, self._node), view, ""))

    def is_repeated(self, create: pb.PodCreate) -> bool:
        """Return True if the pod to create has run here and has ended."""
        found = self.find(create.podIdentifier)
        return found is not None and bool(found.uid) and found.uid == create.pod.metadata.uid

    def message(self, pod_id: str, revision: int) -> pb.PodState | None:
        """Return the last state of the pod; None if it is unknown."""
        found = self.find(pod_id)
        return found.report.message(found.view, revision, ()) if found is not None else None


def kept_session(session_id: str, session: fs.ApplicationSession) -> fs.ApplicationSession:
    """Return what is kept of a session that was refused."""
    kept = fs.ApplicationSession()
    if session.ByteSize() <= KEEP_BYTES:
        kept.CopyFrom(session)
    else:
        kept.metadata.namespace, _, kept.metadata.name = session_id.partition("/")
    return kept
