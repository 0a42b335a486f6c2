"""`CoreState`: nodes, pods and sessions as a core sees them, changed only by messages of nodes. No clock, no I/O.

    POD_STATE, SESSION_STATE   the revision is the last one or the next one; otherwise the node has to send a full list
    NODE_STATE, NODE_READY     full list: a pod that is not on it is deleted, and its sessions are closed; an older list is
                               dropped, unless its revision is 1
    NODE_REGISTER              sets the revision, also to a lower one
    pod                        ignored with its sessions, also on a full list, unless the revision in its annotation grows

Source: fornax-serverless pkg/fornaxcore/nodemonitor, podmanager and sessionmanager, as observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeletx.fornax.stubs import fornax_session_pb2 as session_pb
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as core_pb

from . import names, objects
from .history import History

UNFINISHED: Final = "full sync requested"


class NodeView:
    """One node. `excuse`: why its next revision may differ from the expected one; empty: it may not."""

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier
        self.node = core_pb.Node()
        self.revision = 0
        self.is_known = False
        """The node has registered or sent a full list."""
        self.is_ready = False
        """The node may get pods."""
        self.excuse = "new node"


class PodView:
    """One pod. Times are monotonic seconds; None: not yet."""

    def __init__(self, pod: core_pb.Pod, node: str) -> None:
        self.id = objects.pod_id(pod)
        self.node = node
        self.pod = pod
        self.state = ""
        """Word of the node's last PodState; empty: none yet."""
        self.revision = -1
        self.sessions: set[str] = set()
        """Live sessions: those in the pod's annotation, and one that was just assigned."""
        self.is_deleting = False
        self.requested_at: float | None = None
        self.running_at: float | None = None

    @property
    def phase(self) -> str:
        return self.pod.status.phase

    @property
    def application(self) -> str:
        """Label of the application; empty: none."""
        return self.pod.metadata.labels.get(names.APPLICATION, "")

    @property
    def message(self) -> str:
        return self.pod.status.message

    @property
    def ip(self) -> str:
        """Address of the pod; empty: none."""
        return self.pod.status.podIP

    @property
    def is_idle(self) -> bool:
        """A session may be assigned to the pod."""
        return self.phase == "Running" and not self.sessions and not self.is_deleting


class SessionView:
    """One session. Times are monotonic seconds; None: not yet. `message`: why the node refused or ended it."""

    def __init__(self, session: session_pb.ApplicationSession, pod: str, node: str) -> None:
        self.id = objects.session_id(session)
        self.pod = pod
        self.node = node
        self.session = session
        self.message = ""
        self.requested_at: float | None = None
        self.available_at: float | None = None
        self.closed_at: float | None = None

    @property
    def status(self) -> str:
        return self.session.status.sessionStatus

    @property
    def clients(self) -> list[str]:
        return [one.name for one in self.session.status.clientSessions]

    @property
    def endpoints(self) -> list[str]:
        """Addresses for clients, HOST:PORT."""
        return [f"{one.ipAddress}:{one.port}" for one in self.session.status.accessEndPoints]

    @property
    def is_live(self) -> bool:
        return self.status not in names.ENDED_STATUSES


class CoreState:
    """Objects by identifier. `history` gets gaps and violations."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, PodView] = {}
        self.sessions: dict[str, SessionView] = {}

    def node(self, identifier: str) -> NodeView:
        """Return the node; an unknown one is added."""
        return self.nodes.setdefault(identifier, NodeView(identifier))

    def excuse(self, identifier: str, reason: str) -> None:
        """Expect that the node's next revision may not follow."""
        self.node(identifier).excuse = reason

    def take_registration(self, node: NodeView, registry: pb.NodeRegistry) -> None:
        self._take_node(node, registry.node)
        node.revision, node.is_known = registry.nodeRevision, True

    def take_list(
        self, node: NodeView, listed: pb.NodeState | pb.NodeReady, at: float
    ) -> tuple[str, set[str]]:
        """Take a full list. Return what was made of it, and the pods to terminate. `at`: monotonic seconds."""
        revision = listed.nodeRevision
        if node.is_known and revision < node.revision and revision != 1:
            if not node.excuse:
                self._violation(node, f"full list with revision {revision} after {node.revision}")
            return "older list dropped", set()
        self._take_node(node, listed.node)
        node.is_ready = self._is_ready(node)
        node.revision, node.is_known = revision, True
        found = {objects.pod_id(state.pod) for state in listed.podStates}
        for gone in [
            one for one in self.pods.values() if one.node == node.identifier and one.id not in found
        ]:
            self._remove_pod(gone, at)
        terminate = self._take_pods(node, listed.podStates, at, is_listed=True)
        node.excuse = ""
        return "", terminate

    def take_pod(self, node: NodeView, state: pb.PodState, at: float) -> tuple[str, set[str]]:
        """Take a POD_STATE. Return what was made of it, and the pods to terminate."""
        if not self._follows(node, state.nodeRevision, f"POD_STATE of {objects.pod_id(state.pod)}"):
            return UNFINISHED, set()
        return "", self._take_pods(node, (state,), at, is_listed=False)

    def take_session(self, node: NodeView, state: pb.SessionState, at: float) -> str:
        """Take a SESSION_STATE. Return what was made of it."""
        if not self._follows(
            node, state.nodeRevision, f"SESSION_STATE of {objects.session_id(state.session)}"
        ):
            return UNFINISHED
        self._take_session(node, state, at)
        return ""

    def end_session(self, session: SessionView, status: str, at: float) -> None:
        """Set an ended status and free the pod."""
        session.session.status.sessionStatus = status
        session.closed_at = at
        if (pod := self.pods.get(session.pod)) is not None:
            pod.sessions.discard(session.id)

    def _follows(self, node: NodeView, revision: int, what: str) -> bool:
        if node.is_known and revision in (node.revision, node.revision + 1):
            node.revision = revision
            return True
        text = f"{node.identifier}: {what} has revision {revision} after {node.revision}"
        if node.excuse:
            self.history.explained.append(f"{text} ({node.excuse})")
        else:
            self.history.gaps.append(text)
        node.excuse = UNFINISHED
        return False

    def _take_node(self, node: NodeView, taken: core_pb.Node) -> None:
        found = f"{taken.metadata.namespace}/{taken.metadata.name}"
        if found != node.identifier:
            self._violation(node, f"node object is {found}, a core would store it as another node")
        node.node = taken

    def _is_ready(self, node: NodeView) -> bool:
        status = node.node.status
        if not status.addresses:
            self._violation(node, "status.addresses is empty, which ends a real core")
        has_room = {"cpu", "memory"} <= set(status.allocatable)
        is_true = any(one.type == "Ready" and one.status == "True" for one in status.conditions)
        return status.phase == "Running" and is_true and has_room

    def _take_pods(
        self, node: NodeView, states: Iterable[pb.PodState], at: float, *, is_listed: bool
    ) -> set[str]:
        terminate = set()
        for state in states:
            pod = self._take_pod(node, state, at, is_listed=is_listed)
            if pod is not None and (pod.is_deleting or not pod.application):
                terminate.add(pod.id)
        return terminate

    def _take_pod(self, node: NodeView, state: pb.PodState, at: float, *, is_listed: bool) -> PodView | None:
        """Take one pod; returns it if it was taken and still lives."""
        taken, id = state.pod, objects.pod_id(state.pod)
        annotations = taken.metadata.annotations
        if annotations.get(names.NODE) != node.identifier:
            self._violation(node, f"pod {id} has annotation {names.NODE}={annotations.get(names.NODE)!r}")
            return None
        text = annotations.get(names.REVISION, "")
        if not text.isdigit():
            self._violation(node, f"pod {id} has annotation {names.REVISION}={text!r}, not a revision")
            return None
        known = self.pods.get(id)
        if known is not None and known.node == node.identifier and int(text) <= known.revision:
            self._note_ignored(node, state, known, is_listed=is_listed)
            return None
        if known is None:
            known = self.pods[id] = PodView(taken, node.identifier)
        known.node, known.pod, known.revision = node.identifier, taken, int(text)
        known.state = pb.PodState.State.Name(state.state)
        known.sessions = objects.live_sessions(taken)
        if known.phase == "Running" and known.running_at is None:
            known.running_at = at
        for session in state.sessionStates:
            self._take_session(node, session, at)
        if known.phase in names.TERMINAL_PHASES:
            self._remove_pod(known, at)
            return None
        return known

    def _note_ignored(self, node: NodeView, state: pb.PodState, known: PodView, *, is_listed: bool) -> None:
        self.history.counts["pod ignored"] += 1
        if not is_listed and not node.excuse:
            self._violation(node, f"pod {known.id} was reported again with revision {known.revision}")
        for nested in state.sessionStates:
            seen = self.sessions.get(objects.session_id(nested.session))
            status = nested.session.status.sessionStatus
            if seen is None or (seen.is_live and seen.status not in (status, "Starting")):
                self._violation(
                    node,
                    f"session {objects.session_id(nested.session)} is {status} on a full list, and is ignored: "
                    f"the revision of pod {known.id} has not grown",
                )

    def _take_session(self, node: NodeView, state: pb.SessionState, at: float) -> None:
        taken, id = state.session, objects.session_id(state.session)
        pod = taken.metadata.annotations.get(names.SESSION_POD, "")
        if not pod:
            self._violation(node, f"session {id} lacks annotation {names.SESSION_POD}, its state is lost")
            return
        known = self.sessions.get(id)
        if known is None:
            known = self.sessions[id] = SessionView(taken, pod, node.identifier)
        elif not known.is_live:
            return
        known.session, known.message, known.node = taken, state.message, node.identifier
        if known.status in ("Available", "InUse") and known.available_at is None:
            known.available_at = at
        if not known.is_live:
            self.end_session(known, known.status, at)

    def _remove_pod(self, pod: PodView, at: float) -> None:
        self.pods.pop(pod.id, None)
        for session in self.sessions.values():
            if session.pod == pod.id and session.is_live:
                self.end_session(session, "Closed", at)

    def _violation(self, node: NodeView, text: str) -> None:
        self.history.violations.append(f"{node.identifier}: {text}")
