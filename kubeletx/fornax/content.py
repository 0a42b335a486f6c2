"""`NodeContent`: the pods and sessions of this node as its cores see them.

    node actor ─► command, configure ─► PodActor (one for each pod) ─► pod manager, sessions
    node actor ◄─ Mailbox: what changed ◄──────┘
    node actor ─► pod_state, session_state, pod_states: messages with a revision

Every command is answered: by a changed state, by the present state again, by a failed pod or a closed session with a
reason, or by a full list if the core knows a pod that this node does not have. Ended pods and refused sessions are kept
for ten minutes, so that late questions are answered, too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from kubeletx.api import InvalidConfig, KubeletxError, PodUid, Unavailable
from kubeletx.kube.types.node import Node
from kubeletx.node.status import is_ready as is_node_ready
from kubeletx.pods.model.sources import FORNAX
from kubeletx.sessions.model import CLOSING, OPENING, OpenRequest, Session

from . import names
from .convert import node_message
from .mailbox import Mailbox
from .pods.actor import PodActor
from .pods.ended import Recent, RefusedSession, refused_session
from .pods.machine import PodState
from .pods.registry import RETRY_SECONDS, CorePods
from .pods.reports import ended_session, session_message
from .stubs import fornax_session_pb2 as fs
from .stubs import fornaxcore_pb2 as pb
from .stubs import k8s_core_v1_pb2 as core

log = structlog.get_logger(__name__)

_OPEN_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 60.0
"""Time-outs of a session that has none."""
_SESSION_BYTES: Final = 64 << 10
"""Most bytes of a session without its data: it is in every report about the session."""
_LISTED_ENDED: Final = 500
"""Most ended sessions on a full list, the last ones: a published core takes 4 MiB, and busy pods end 50 in a second."""


class NodeContent:
    """The pods and sessions of this node as its cores see them. The node actor uses it, on the event loop."""

    def __init__(
        self,
        pods: CorePods,
        mailbox: Mailbox,
        *,
        watch_node: Callable[[], AsyncIterator[Node]],
        apply_pod_cidrs: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        """`watch_node`: yields the Node at once and after each change.

        `apply_pod_cidrs`: passes the pod network's ranges to the runtimes, see `PodCidrs.apply`.
        """
        self.ready = pods.ready
        self._pods = pods
        self._sessions = pods.services.sessions
        self._mailbox = mailbox
        self._watch_node = watch_node
        self._apply_pod_cidrs = apply_pod_cidrs
        self._refused: Recent[RefusedSession] = Recent(pods.services.clock)
        self._node: core.Node | None = None
        self._is_node_ready = False
        self._pod_cidrs: tuple[str, ...] = ()
        self._is_configured = False
        self._sessions.subscribe(self._session_changed)

    async def run(self) -> None:
        """Follow the Node until cancelled."""
        while True:
            try:
                async for node in self._watch_node():
                    self._node = node_message(node)
                    self._is_node_ready = is_node_ready(node.status.conditions)
                    self._mailbox.node()
            except KubeletxError as error:
                log.warning("Failed to read the node for its cores", err=str(error))
            await self._pods.services.clock.sleep(RETRY_SECONDS)

    def _session_changed(self, session: Session) -> None:
        if session.origin == FORNAX:
            self._report(session)
        actor = self._pods.of_uid(session.pod_uid)
        if actor is not None:
            actor.session_changed(session)

    def _report(self, session: Session) -> None:
        """Report a session; a core waits for the result of a command, not for the states before it."""
        self._mailbox.session(session.id, soon=session.state in OPENING or session.state in CLOSING)

    # --- reports ------------------------------------------------------------------------------------

    def node(self, revision: int) -> core.Node:
        """Return the Node with its state at `revision`; without status as long as it is unknown."""
        node = core.Node()
        if self._node is not None:
            node.CopyFrom(self._node)
        node.metadata.resourceVersion = str(revision)
        node.metadata.annotations[names.NODE_REVISION] = str(revision)
        if self._pod_cidrs:
            node.spec.podCIDR = self._pod_cidrs[0]
            del node.spec.podCIDRs[:]
            node.spec.podCIDRs.extend(self._pod_cidrs)
        return node

    def is_ready(self) -> bool:
        """Return True if the Node has condition Ready with status True."""
        return self._is_node_ready

    def pod_state(self, pod_id: str, revision: int) -> pb.PodState | None:
        """Return the pod's state, changed last at `revision`; None if the pod is unknown."""
        actor = self._pods.find(pod_id)
        if actor is None:
            ended = self._pods.ended.find(pod_id)
            return ended.report.message(ended.view, revision, ()) if ended is not None else None
        actor.revision = revision
        self._pods.services.records.note_report(pod_id, actor.row.uid, revision, actor.status)
        live = self._sessions.of_pod(actor.row.uid)
        return self._pod_message(actor, revision, [one for one in live if one.origin == FORNAX])

    def session_state(self, session_id: str, revision: int) -> pb.SessionState | None:
        """Return the session's state, changed last at `revision`; None if the session is unknown.

        The session's pod counts as changed, too: in a full list, a core reads the sessions of changed pods only.
        """
        session = self._find_session(session_id)
        if session is None:
            return None
        actor = self._pods.of_uid(session.pod_uid)
        if actor is not None:
            actor.revision = revision
        return session_message(session, revision, actor.endpoints if actor is not None else ())

    def refused_session(self, session_id: str, revision: int) -> pb.SessionState | None:
        """Return the answer to a session that this node refused; None if there is none any more."""
        found = self._refused.find(session_id)
        return ended_session(found.session, found.pod_id, found.problem, revision) if found else None

    async def stored(self) -> None:
        """See `CorePods.stored`."""
        await self._pods.stored()

    def pod_states(self, revision: int) -> list[pb.PodState]:
        """Return the states of all stored pods with their sessions, also the last sessions that have ended.

        Each pod has the revision of its last change. `revision`: revision of the list, and of pods that this process
        has not reported yet.
        """
        by_pod: dict[PodUid, list[Session]] = {}
        of_cores = [one for one in self._sessions.all() if one.origin == FORNAX]
        ended = [one for one in of_cores if one.is_over]
        for session in (*(one for one in of_cores if not one.is_over), *ended[-_LISTED_ENDED:]):
            by_pod.setdefault(session.pod_uid, []).append(session)
        states = []
        for actor in self._pods:
            # A core expects a pod of a list after a crash, too, so the pod is on the disk first.
            if actor.is_begun and actor.state is not PodState.TERMINATED:
                if actor.revision is None:
                    actor.revision = revision
                states.append(self._pod_message(actor, actor.revision, by_pod.get(actor.row.uid, ())))
        return states

    def _pod_message(self, actor: PodActor, revision: int, sessions: Sequence[Session]) -> pb.PodState:
        messages = [session_message(one, revision, actor.endpoints) for one in sessions]
        return actor.report.message(actor.view(), revision, messages)

    # --- commands -----------------------------------------------------------------------------------

    async def configure(self, configuration: pb.NodeConfiguration) -> None:
        """Take the cluster domain for later pods, pass the pod network to the runtimes, and start the daemon pods.

        See `CorePods.set_daemons`. Raises InvalidConfig for an invalid range of addresses.
        """
        spec = configuration.node.spec
        cidrs = tuple(spec.podCIDRs) or ((spec.podCIDR,) if spec.podCIDR else ())
        for cidr in cidrs:
            _check_cidr(cidr)
        if cidrs and cidrs != self._pod_cidrs:
            await self._apply_pod_cidrs(cidrs)
        self._pod_cidrs, self._pods.cluster_domain = cidrs, configuration.clusterDomain
        await self._pods.set_daemons(configuration.daemonPods)
        self._is_configured = True
        log.info(
            "Applied the configuration of a core", pod_cidrs=cidrs, daemons=len(configuration.daemonPods)
        )

    async def command(self, message: pb.FornaxCoreMessage, core: str) -> bool:
        """Carry out a checked command about a pod or a session. `core`: name of the core, for the log.

        Returns once the command is handed over to the actor of its pod; changes are reported now or later. True: the
        core needs a full list, since it has a pod that this node does not have.
        """
        match message.messageType:
            case pb.POD_CREATE:
                self._create(message.podCreate, core)
            case pb.POD_TERMINATE:
                return self._of_pod(message.podTerminate.podIdentifier, PodActor.terminate)
            case pb.POD_HIBERNATE:
                return self._of_pod(message.podHibernate.podIdentifier, PodActor.hibernate)
            case pb.POD_ACTIVE:
                return self._of_pod(message.podActive.podIdentifier, PodActor.activate)
            case pb.SESSION_OPEN:
                self._open(message.sessionOpen)
            case pb.SESSION_CLOSE:
                self._close(message.sessionClose)
        return False

    async def forget_all(self) -> None:
        """Begin to remove all pods that cores created on this node, and forget ended pods and refused sessions."""
        for actor in self._pods:
            actor.terminate()
        self._pods.ended.clear()
        self._refused.clear()

    def _create(self, create: pb.PodCreate, core: str) -> None:
        pod_id, uid = create.podIdentifier, create.pod.metadata.uid
        ended = self._pods.ended.find(pod_id)
        if self._pods.find(pod_id) is not None or (ended is not None and uid and ended.uid == uid):
            self._mailbox.pod(pod_id)
        elif not (self._is_configured and self._is_node_ready):
            why = (
                "the node is not ready" if self._is_configured else "the core has not configured the node yet"
            )
            self._pods.refuse(
                create, Unavailable(f"pod {pod_id}: {why}; create it again later", reason="NodeNotReady")
            )
        else:
            log.info("Creating a pod of a core", pod=pod_id, core=core)
            self._pods.create(create)

    def _of_pod(self, pod_id: str, command: Callable[[PodActor], None]) -> bool:
        actor = self._pods.find(pod_id)
        if actor is not None:
            command(actor)
        elif self._pods.ended.find(pod_id) is not None:
            self._mailbox.pod(pod_id)
        else:
            return True
        return False

    def _open(self, message: pb.SessionOpen) -> None:
        session_id, actor = message.sessionIdentifier, self._pods.find(message.podIdentifier)
        answer = partial(self._answer, session_id, message.podIdentifier, message.session)
        if actor is None:
            answer(Unavailable(f"pod {message.podIdentifier} is not on this node"))
            return
        try:
            actor.open_session(_request(message), answer)
        except InvalidConfig as error:
            answer(error)

    def _close(self, message: pb.SessionClose) -> None:
        session_id = message.sessionIdentifier
        session = self._find_session(session_id)
        if session is None:
            error = Unavailable(f"session {session_id} is not on this node")
            self._answer(session_id, message.podIdentifier, fs.ApplicationSession(), error)
            return
        actor = self._pods.of_uid(session.pod_uid)
        if session.is_over or actor is None:
            self._mailbox.session(session.id)
        else:
            actor.close_session(session.id)

    def _find_session(self, session_id: str) -> Session | None:
        """Return the session that a core opened; None if there is none, or an operator opened it."""
        session = self._sessions.find(session_id)
        return session if session is not None and session.origin == FORNAX else None

    def _answer(
        self, session_id: str, pod_id: str, session: fs.ApplicationSession, error: KubeletxError | None
    ) -> None:
        """Report a session. With an error, a session that this node does not have is reported as closed."""
        before = self._refused.find(session_id)
        self._refused.forget(session_id)
        if error is not None:
            refused = refused_session(session_id, pod_id, session, error)
            if before is None or before.problem != refused.problem:
                log.warning("Refused a session of a core", session=session_id, err=refused.problem)
        if (session_here := self._find_session(session_id)) is not None:
            self._report(session_here)
        elif error is not None:
            self._refused.put(session_id, refused)
            self._mailbox.answer(session_id)


def _request(message: pb.SessionOpen) -> OpenRequest:
    """Return the request of a SESSION_OPEN. Raises InvalidConfig if its session has another name or invalid texts."""
    session, obj = message.session, f"session {message.sessionIdentifier}"
    metadata, spec = session.metadata, session.spec
    name = f"{metadata.namespace}/{metadata.name}"
    if name != message.sessionIdentifier:
        fix = "sessionIdentifier is namespace/name"
        raise InvalidConfig(obj=obj, field="metadata.name", problem=f"is of session {name}", fix=fix)
    rest = fs.ApplicationSession()
    rest.CopyFrom(session)
    rest.spec.ClearField("sessionData")
    if rest.ByteSize() > _SESSION_BYTES:
        problem, fix = (
            f"has {rest.ByteSize()} bytes without spec.sessionData",
            f"use at most {_SESSION_BYTES}",
        )
        raise InvalidConfig(obj=obj, field="session", problem=problem, fix=fix)
    for field in ("applicationName", "sessionData"):
        if not isinstance(getattr(spec, field), str):  # an invalid text of proto2 stays bytes
            problem, fix = "is not UTF-8", "send it as UTF-8"
            raise InvalidConfig(obj=obj, field=f"spec.{field}", problem=problem, fix=fix)
    return OpenRequest(
        id=message.sessionIdentifier,
        pod_id=message.podIdentifier,
        application=spec.applicationName,
        data=spec.sessionData.encode(),
        kills_instance=spec.killInstanceWhenSessionClosed,
        open_timeout_seconds=float(spec.openTimeoutSeconds or _OPEN_SECONDS),
        close_grace_seconds=float(spec.closeGracePeriodSeconds or _CLOSE_SECONDS),
        origin=FORNAX,
        uid=metadata.uid,
        payload=rest.SerializeToString(),
    )


def _check_cidr(cidr: str) -> None:
    try:
        ipaddress.ip_network(cidr, strict=False)
    except ValueError as error:
        raise InvalidConfig(
            obj="NODE_CONFIGURATION",
            field="node.spec.podCIDR",
            problem=f"{cidr!r}: {error}",
            fix="such as 10.0.0.0/24",
        ) from error
