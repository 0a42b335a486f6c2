"""States of pods and sessions as messages for a core. Pure.

A core reads the phase of a pod, not its state: Pending until the pod is ready, then Running also while it is frozen or
ends, and Succeeded or Failed once it is over. A pod that failed by itself is Failed at once, since a core waits for it.

State of a session to `sessionStatus`:

    STARTING, READINESS_CHECKING     Starting
    READY                            Available
    LIVE                             InUse
    EVACUATING, TERMINATING          Closing: the document's "evacuating"
    TERMINATED                       Closed: also the document's "evacuated"; Timeout if it did not become ready in time
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kubeletx.kube.types.core import PodStatus
from kubeletx.pods import FINAL
from kubeletx.sessions.model import Reason, Session, SessionState

from .. import names
from ..convert import fill
from ..stubs import fornax_session_pb2 as fs
from ..stubs import fornaxcore_pb2 as pb
from ..stubs import k8s_core_v1_pb2 as core
from .machine import ENDING, NEW, PodState
from .prepare import pod_id_of

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_WIRE: Final = {
    PodState.CREATING: pb.PodState.Creating,
    PodState.LIVENESS_CHECKING: pb.PodState.Creating,
    PodState.STANDBY: pb.PodState.Standby,
    PodState.ACTIVATING: pb.PodState.Activating,
    PodState.RUNNING: pb.PodState.Running,
    PodState.HIBERNATING: pb.PodState.Running,
    PodState.EVACUATING: pb.PodState.Evacuating,
    PodState.TERMINATING: pb.PodState.Terminating,
    PodState.TERMINATED: pb.PodState.Terminated,
}
_WORDS: Final = {
    SessionState.STARTING: "Starting",
    SessionState.READINESS_CHECKING: "Starting",
    SessionState.READY: "Available",
    SessionState.LIVE: "InUse",
    SessionState.EVACUATING: "Closing",
    SessionState.TERMINATING: "Closing",
    SessionState.TERMINATED: "Closed",
}


class CorePodView(msgspec.Struct, frozen=True, kw_only=True):
    """All that a core sees of a pod besides its spec; a pod is reported again if its view has changed.

    `status`: None while the pod is new, since its details change often then. `sessions`: identifiers of its sessions
    that have not ended, sorted.
    """

    state: pb.PodState.State
    phase: str
    reason: str = ""
    message: str = ""
    status: PodStatus | None = None
    sessions: tuple[str, ...] = ()


class PodFailure(msgspec.Struct, frozen=True):
    """Reason for which a pod failed, in CamelCase, and a text for people."""

    reason: str
    message: str


def view_of(
    state: PodState,
    status: PodStatus | None,
    *,
    failure: PodFailure | None,
    note: str,
    is_deleted: bool,
    sessions: Iterable[str],
) -> CorePodView:
    """Return the view of a pod.

    `failure`: why this node ends the pod. `note`: message about a command that was not carried out. `is_deleted`: a
    core terminates the pod, which is over when nothing is left of it.
    """
    is_over = state is PodState.TERMINATED or (state in ENDING and not is_deleted)
    ended = status if status is not None and status.phase in FINAL else None
    if failure is not None:
        phase, reason, message = FAILED, failure.reason, failure.message
    else:
        phase = _phase(state, status, is_over=is_over)
        shown = ended if is_over else None
        reason = (shown.reason or "") if shown is not None else ""
        message = note or ((shown.message or "") if shown is not None else "")
    return CorePodView(
        state=_WIRE[state],
        phase=phase,
        reason=reason,
        message=message,
        status=status if state not in NEW else None,
        sessions=tuple(sorted(sessions)),
    )


def is_awaited(before: CorePodView, now: CorePodView) -> bool:
    """Return True if a core may wait for this change of a pod.

    It waits for neither a status alone, nor a pod that wakes or runs for a session: it waits for the session itself. The
    list of sessions may be late, since the core knows which ones it has opened, and each report contains the list.
    """
    if (now.phase, now.reason, now.message) != (before.phase, before.reason, before.message):
        return True
    is_awake = now.state in (pb.PodState.Activating, pb.PodState.Running) and bool(now.sessions)
    return now.state != before.state and not is_awake


def _phase(state: PodState, status: PodStatus | None, *, is_over: bool) -> str:
    if state in NEW:
        return PENDING
    known = status.phase if status is not None else None
    if is_over and known in FINAL:
        return str(known)
    if state is PodState.TERMINATED:
        return SUCCEEDED if status is not None else FAILED
    return RUNNING


class PodReport:
    """Builds the messages about one pod.

    The message of the pod is kept from one report to the next; the status is written into it only if it has changed.
    """

    def __init__(self, spec: core.Pod, node: str) -> None:
        """`spec`: the pod as its core sent it, with the host ports. `node`: identifier of this node."""
        self.pod_id = pod_id_of(spec)
        self._shown = core.Pod()
        self._shown.CopyFrom(spec)
        self._shown.ClearField("status")
        self._shown.metadata.annotations[names.NODE] = node
        self._view: CorePodView | None = None

    def message(self, view: CorePodView, revision: int, sessions: Iterable[pb.SessionState]) -> pb.PodState:
        """Return the pod's state, changed last at `revision`. `sessions`: states of its sessions."""
        if view != self._view:
            self._write(view)
            self._view = view
        self._shown.metadata.resourceVersion = str(revision)
        self._shown.metadata.annotations[names.NODE_REVISION] = str(revision)
        return pb.PodState(nodeRevision=revision, state=view.state, pod=self._shown, sessionStates=sessions)

    def _write(self, view: CorePodView) -> None:
        status, notes = self._shown.status, self._shown.metadata.annotations
        status.Clear()
        if view.status is not None:
            fill(status, msgspec.to_builtins(view.status))
        status.phase = view.phase
        if view.reason or view.message:
            status.reason, status.message = view.reason, view.message
        if view.sessions:
            notes[names.SESSIONS] = ",".join(view.sessions)
        elif names.SESSIONS in notes:
            del notes[names.SESSIONS]


def session_message(
    session: Session, revision: int, endpoints: Iterable[fs.AccessEndPoint]
) -> pb.SessionState:
    """Return the state of a session that a core opened, changed last at `revision`.

    `endpoints`: addresses of its pod. A silent instance is flagged in `message`; the core decides about the session.
    """
    found = fs.ApplicationSession.FromString(session.payload)
    if session.data:  # not in the payload
        found.spec.sessionData = session.data.decode()
    status = found.status
    del status.accessEndPoints[:]
    if session.state in (SessionState.READY, SessionState.LIVE):
        status.accessEndPoints.extend(endpoints)
    status.sessionStatus = _word(session)
    del status.clientSessions[:]
    for client in session.clients:
        status.clientSessions.add(name=client.name)
    if session.ready_at is not None:
        status.availableTime.seconds = int(session.ready_at.timestamp())
        status.availableTimeMicro = int(session.ready_at.timestamp() * 1_000_000)
    if session.closed_at is not None:
        status.closeTime.seconds = int(session.closed_at.timestamp())
    _mark(found, session.pod_id, revision)
    message = session.message
    if session.is_silent and not session.is_over:
        message = f"no heartbeat since {session.heartbeat_at}" if session.heartbeat_at else "no heartbeat yet"
    return pb.SessionState(nodeRevision=revision, session=found, message=message)


def _mark(session: fs.ApplicationSession, pod_id: str, revision: int) -> None:
    notes = session.metadata.annotations
    notes[names.NODE_REVISION] = str(revision)
    if names.POD not in notes:
        notes[names.POD] = pod_id


def _word(session: Session) -> str:
    if session.state is SessionState.TERMINATED and session.reason == Reason.OPEN_TIMEOUT:
        return "Timeout"
    return _WORDS[session.state]


def ended_session(
    session: fs.ApplicationSession, pod_id: str, message: str, revision: int
) -> pb.SessionState:
    """Return the state of a session that this node does not have: refused, or closed long ago."""
    found = fs.ApplicationSession()
    found.CopyFrom(session)
    found.status.sessionStatus = "Closed"
    _mark(found, pod_id, revision)
    return pb.SessionState(nodeRevision=revision, session=found, message=message)


def endpoints_of(spec: core.Pod) -> tuple[fs.AccessEndPoint, ...]:
    """Return the addresses at which the ports of the pod can be reached. `spec`: the pod with its host ports."""
    return tuple(
        fs.AccessEndPoint(protocol=port.protocol or "TCP", ipAddress=port.hostIP, port=port.hostPort)
        for container in spec.spec.containers
        for port in container.ports
        if port.hostPort
    )
