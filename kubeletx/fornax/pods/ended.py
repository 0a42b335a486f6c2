"""Ended and refused pods and sessions, which are kept for ten minutes, since cores may ask about them."""

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
"""Only the name of a refused pod or session that is larger is kept."""
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


class EndedPod(msgspec.Struct, frozen=True):
    """A pod as it was last reported. `uid`: as the core gave it; empty if it gave none, or if the pod was refused."""

    report: PodReport
    view: CorePodView
    uid: str = ""


class RefusedSession(msgspec.Struct, frozen=True):
    """A session that this node does not have, and why. `pod_id`: pod that the core named."""

    session: fs.ApplicationSession
    pod_id: str
    problem: str


def refused_pod(create: pb.PodCreate, error: KubeletxError, node: str) -> EndedPod:
    """Return a pod that does not run: it is over, and Failed, so that its core does not wait for it."""
    pod = create.pod
    if pod.ByteSize() > KEEP_BYTES:
        pod = core.Pod()
        pod.metadata.namespace, _, pod.metadata.name = create.podIdentifier.partition("/")
    view = CorePodView(
        state=pb.PodState.Terminated,
        phase=FAILED,
        reason=error.reason or row_of(error).event_reason,
        message=shortened(str(error)),
    )
    return EndedPod(PodReport(pod, node), view)


def refused_session(
    session_id: str, pod_id: str, session: fs.ApplicationSession, error: KubeletxError
) -> RefusedSession:
    """Return a session that is not opened."""
    if session.ByteSize() > KEEP_BYTES or not session.metadata.name:
        session = fs.ApplicationSession()
        session.metadata.namespace, _, session.metadata.name = session_id.partition("/")
    return RefusedSession(session, pod_id, shortened(str(error)))
