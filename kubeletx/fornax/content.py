"""`NodeContent`: the pods and sessions of this node as its cores see them.

    node actor ─► command, configure ─► PodActor (one for each pod) ─► pod source, sessions
    node actor ◄─ on_pod, on_session ◄─────────┘
    node actor ─► pod_state, session_state, pod_states: messages with a revision

Every command is answered: by a changed state, by the present state again, by a failed pod or a closed session with a
reason, or by a full list if the core knows a pod that this node does not have. What has ended is kept for ten minutes,
so that late questions are answered, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock, InvalidConfig, KubeletxError, PodUid, Unavailable
from kubeletx.api.waiting import first_of
from kubeletx.kube.types.node import Node
from kubeletx.node.status import is_ready as is_node_ready
from kubeletx.pods import PodManager, StatusBoard
from kubeletx.pods.model.sources import FORNAX
from kubeletx.sessions.model import CLOSING, OPENING, OpenRequest, Session
from kubeletx.sessions.service import Sessions
from kubeletx.store import Store

from . import names
from .convert import node_message
from .mailbox import OnChange
from .pods.actor import ActorServices, PodActor
from .pods.creation import ContentSettings, PodCreation
from .pods.ended import Recent, kept_session
from .pods.machine import PodState
from .pods.ports import is_unused
from .pods.prepare import pod_id_of
from .pods.records import CorePodRecords
from .pods.registry import RETRY_SECONDS, CorePods
from .pods.reports import ended_session, session_message
from .pods.source import CoreSource
from .reconcile import Repair
from .stubs import fornax_session_pb2 as fs
from .stubs import fornaxcore_pb2 as pb
from .stubs import k8s_core_v1_pb2 as core
from .wire import shortened

log = structlog.get_logger(__name__)

_OPEN_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 60.0
"""Time-outs of a session that has none."""
_SESSION_BYTES: Final = 64 << 10
"""Most bytes of a session without its data: it is in every report about the session."""
_LISTED_ENDED: Final = 500
"""Most ended sessions on a full list, the last ones: a published core takes 4 MiB, and busy pods end 50 in a second."""


class ContentServices(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the agent that `NodeContent` uses.

    `watch_node`: yields the Node at once and after each change. `apply_pod_cidrs`: passes the pod network's ranges to
    the runtimes, see `PodCidrs.apply`. `is_port_free`: returns True if no program of the node uses the port.
    """

    store: Store
    clock: Clock
    pods: PodManager
    board: StatusBoard
    sessions: Sessions
    watch_node: Callable[[], AsyncIterator[Node]]
    apply_pod_cidrs: Callable[[Sequence[str]], Awaitable[None]]
    is_port_free: Callable[[int], bool] = is_unused


class NodeContent:
    """The pods and sessions of this node as its cores see them. The node actor uses it, on the event loop."""

    def __init__(
        self,
        services: ContentServices,
        settings: ContentSettings,
        *,
        on_pod: OnChange,
        on_session: OnChange,
        on_node: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_pod`, `on_session`: called with an identifier, namespace/name, when there is something to report.

        `on_node`: called when the Node changed.
        """
        self.ready = asyncio.Event()
        """Set once the stored pods are loaded and compared with the runtimes; before this no list is complete."""
        self._services = services
        self._settings = settings
        self._on_pod = on_pod
        self._on_session = on_session
        self._on_node = on_node
        self._records = CorePodRecords(services.store)
        self._creation = PodCreation(settings, services.clock, services.is_port_free)
        self.objects = self._creation.objects
        """Config maps and secrets for the pods of source ``fornax``."""
        self._pods = CorePods(
            ActorServices(
                node=settings.identifier,
                clock=services.clock,
                source=CoreSource(services.pods),
                sessions=services.sessions,
                records=self._records,
                liveness_seconds=settings.liveness_seconds,
            ),
            self._creation,
            manager=services.pods,
            board=services.board,
            changed=on_pod,
        )
        self._refused: Recent[Callable[[int], pb.SessionState]] = Recent(services.clock)
        """Functions that return a session's state at a revision, by session."""
        self._node: core.Node | None = None
        self._is_node_ready = False
        self._pod_cidrs: tuple[str, ...] = ()
        self._cluster_domain = ""
        self._is_configured = False
        self._logged: set[str] = set()
        services.sessions.subscribe(self._session_changed)

    # --- life ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """See `CorePods.load`."""
        await self._pods.load()

    def recovered(self) -> None:
        """See `CorePods.recovered`."""
        self._pods.recovered()

    async def run(self) -> None:
        """Compare the stored pods with the runtimes, set `ready`, then run the actors of the pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(self.ready), name="fornax-pods")
            group.create_task(self._follow_node(), name="fornax-node")

    def repairs(self) -> Mapping[str, Repair]:
        """Return the repairs of the pods' state by name, for `Reconciler`; they work once `ready` is set."""
        found = {
            "pods": self._pods.repair_pods,
            "strays": self._pods.repair_strays,
            "rows": self._pods.repair_rows,
            "ports": self._pods.repair_ports,
        }
        return {name: partial(self._when_ready, repair) for name, repair in found.items()}

    async def _when_ready(self, repair: Repair) -> Sequence[str]:
        await self.ready.wait()
        return await repair()

    async def _follow_node(self) -> None:
        while True:
            try:
                async for node in self._services.watch_node():
                    self._node = node_message(node)
                    self._is_node_ready = is_node_ready(node.status.conditions)
                    self._on_node()
            except KubeletxError as error:
                log.warning("Failed to read the node for its cores", err=str(error))
            await self._services.clock.sleep(RETRY_SECONDS)

    def _session_changed(self, session: Session) -> None:
        if session.origin == FORNAX:
            self._report(session)
        actor = self._pods.of_uid(session.pod_uid)
        if actor is not None:
            actor.session_changed(session)

    def _report(self, session: Session) -> None:
        """Report a session; a core waits for the result of a command, not for the states before it."""
        self._on_session(session.id, soon=session.state in OPENING or session.state in CLOSING)

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
            return self._pods.ended.message(pod_id, revision)
        actor.revision = revision
        self._records.note_report(pod_id, actor.row.uid, revision, actor.status)
        live = self._services.sessions.of_pod(actor.row.uid)
        sessions = [self._session_message(one, revision) for one in live if one.origin == FORNAX]
        return actor.report.message(actor.view(), revision, sessions)

    def session_state(self, session_id: str, revision: int) -> pb.SessionState | None:
        """Return the session's state, changed last at `revision`; None if the session is unknown.

        The session's pod counts as changed, too: in a full list, a core reads the sessions of changed pods only.
        """
        session = self._services.sessions.find(session_id)
        if session is None or session.origin != FORNAX:
            refused = self._refused.find(session_id)
            return refused(revision) if refused is not None else None
        actor = self._pods.of_uid(session.pod_uid)
        if actor is not None:
            actor.revision = revision
        return self._session_message(session, revision)

    def pod_states(self, revision: int) -> list[pb.PodState]:
        """Return the states of all pods with their sessions, also the last ones that have ended.

        Each pod keeps the revision of its last change. `revision`: revision of the list, which pods get that were not
        reported by this process.
        """
        by_pod: dict[PodUid, list[Session]] = {}
        of_cores = [one for one in self._services.sessions.all() if one.origin == FORNAX]
        ended = [one for one in of_cores if one.is_over]
        for session in (*(one for one in of_cores if not one.is_over), *ended[-_LISTED_ENDED:]):
            by_pod.setdefault(session.pod_uid, []).append(session)
        return [
            self._listed(actor, revision, by_pod.get(actor.row.uid, []))
            for actor in self._pods
            if actor.state is not PodState.TERMINATED
        ]

    def _listed(self, actor: PodActor, revision: int, sessions: list[Session]) -> pb.PodState:
        if actor.revision is None:
            actor.revision = revision
        messages = [self._session_message(one, actor.revision) for one in sessions]
        return actor.report.message(actor.view(), actor.revision, messages)

    def _session_message(self, session: Session, revision: int) -> pb.SessionState:
        actor = self._pods.of_uid(session.pod_uid)
        return session_message(session, revision, actor.endpoints if actor is not None else ())

    # --- commands -----------------------------------------------------------------------------------

    async def configure(self, configuration: pb.NodeConfiguration) -> None:
        """Take the cluster domain for later pods, pass the pod network to the runtimes, and start the daemon pods.

        Returns once the daemon pods are ready or have failed. Pods of earlier configurations that are not in this one
        are ended. Raises InvalidConfig for an invalid range of addresses.
        """
        spec = configuration.node.spec
        cidrs = tuple(spec.podCIDRs) or ((spec.podCIDR,) if spec.podCIDR else ())
        for cidr in cidrs:
            _check_cidr(cidr)
        if cidrs and cidrs != self._pod_cidrs:
            await self._services.apply_pod_cidrs(cidrs)
        self._pod_cidrs, self._cluster_domain = cidrs, configuration.clusterDomain
        wanted = {pod_id_of(pod): pod for pod in configuration.daemonPods}
        for actor in self._pods:
            pod = wanted.get(actor.pod_id)
            if actor.row.is_daemon and not (pod is not None and self._creation.is_made_of(actor.row, pod)):
                actor.terminate()
                if pod is not None:
                    await actor.ended.wait()
        for pod_id, pod in wanted.items():
            if self._pods.find(pod_id) is None:
                self._create(pb.PodCreate(podIdentifier=pod_id, pod=pod), is_daemon=True)
        settled = [actor.settled.wait() for actor in self._pods if actor.row.is_daemon]
        if settled:
            limit = self._services.clock.sleep(self._settings.liveness_seconds)
            await first_of("daemon pods", _all(settled), limit)
        self._is_configured = True
        log.info("Applied the configuration of a core", pod_cidrs=cidrs, daemons=len(wanted))

    async def command(self, message: pb.FornaxCoreMessage, core: str) -> bool:
        """Carry out a checked command about a pod or a session. `core`: name of the core, for the log.

        Returns once the command is handed over to the actor of its pod; changes are reported through `on_pod` and
        `on_session`, now or later. True: the core needs a full list, since it has a pod that this node does not have.
        """
        match message.messageType:
            case pb.POD_CREATE:
                self._create_asked(message.podCreate, core)
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
        """Begin to remove all pods that cores created on this node, and forget what has ended."""
        for actor in self._pods:
            actor.terminate()
        self._pods.ended.clear()
        self._refused.clear()

    def _create_asked(self, create: pb.PodCreate, core: str) -> None:
        pod_id = create.podIdentifier
        if self._pods.find(pod_id) is not None or self._pods.ended.is_repeated(create):
            self._on_pod(pod_id)
        elif not (self._is_configured and self._is_node_ready):
            self._refuse_pod(create, Unavailable("the node is not ready for pods", reason="NodeNotReady"))
        else:
            log.info("Creating a pod of a core", pod=pod_id, core=core)
            self._create(create, is_daemon=False)

    def _create(self, create: pb.PodCreate, *, is_daemon: bool) -> None:
        """Make the actor of a new pod; a pod that cannot be run is reported as failed."""
        try:
            self._pods.create(create, is_daemon=is_daemon, cluster_domain=self._cluster_domain)
        except KubeletxError as error:
            self._refuse_pod(create, error)

    def _refuse_pod(self, create: pb.PodCreate, error: KubeletxError) -> None:
        self._log_once("Refused a pod of a core", error, pod=create.podIdentifier)
        self._pods.ended.refuse(create, error)
        self._on_pod(create.podIdentifier)

    def _of_pod(self, pod_id: str, command: Callable[[PodActor], None]) -> bool:
        actor = self._pods.find(pod_id)
        if actor is not None:
            command(actor)
        elif pod_id in self._pods.ended:
            self._on_pod(pod_id)
        else:
            return True
        return False

    def _open(self, message: pb.SessionOpen) -> None:
        session_id, actor = message.sessionIdentifier, self._pods.find(message.podIdentifier)
        answer = partial(self._answer_session, session_id, message.podIdentifier, message.session)
        metadata = message.session.metadata
        if f"{metadata.namespace}/{metadata.name}" != session_id:
            problem = f"is of session {metadata.namespace}/{metadata.name}"
            answer(InvalidConfig(obj=f"session {session_id}", field="metadata.name", problem=problem))
        elif actor is None:
            answer(Unavailable(f"pod {message.podIdentifier} is not on this node"))
        else:
            try:
                actor.open_session(_request(message), answer)
            except InvalidConfig as error:
                answer(error)

    def _close(self, message: pb.SessionClose) -> None:
        session = self._services.sessions.find(message.sessionIdentifier)
        if session is None or session.origin != FORNAX:  # one of an operator is none of the core's
            namespace, _, name = message.sessionIdentifier.partition("/")
            unknown = fs.ApplicationSession()
            unknown.metadata.namespace, unknown.metadata.name = namespace, name
            error = Unavailable(f"session {message.sessionIdentifier} is not on this node")
            self._answer_session(message.sessionIdentifier, message.podIdentifier, unknown, error)
            return
        actor = self._pods.of_uid(session.pod_uid)
        if session.is_over or actor is None:
            self._on_session(session.id)
        else:
            actor.close_session(session.id)

    def _answer_session(
        self, session_id: str, pod_id: str, session: fs.ApplicationSession, error: KubeletxError | None
    ) -> None:
        """Report a session. With an error, a session that this node does not have is reported as closed."""
        self._refused.forget(session_id)
        if error is not None:
            self._log_once("Refused a session of a core", error, session=session_id)
            kept, text = kept_session(session_id, session), shortened(str(error))
            self._refused.put(session_id, partial(ended_session, kept, pod_id, text))
            self._on_session(session_id)
        elif (opened := self._services.sessions.find(session_id)) is not None:
            self._report(opened)

    def _log_once(self, event: str, error: KubeletxError, **about: str) -> None:
        problem = shortened(str(error))
        text = f"{event} {about} {problem}"
        if text in self._logged:
            return
        if len(self._logged) >= 1000:
            self._logged.clear()
        self._logged.add(text)
        log.warning(event, **about, err=problem)


def _request(message: pb.SessionOpen) -> OpenRequest:
    session = message.session
    spec = session.spec
    rest = fs.ApplicationSession()
    rest.CopyFrom(session)
    rest.spec.ClearField("sessionData")
    if rest.ByteSize() > _SESSION_BYTES:
        raise InvalidConfig(
            obj=f"session {message.sessionIdentifier}",
            field="session",
            problem=f"has {rest.ByteSize()} bytes without spec.sessionData",
            fix=f"use at most {_SESSION_BYTES}",
        )
    for field in ("applicationName", "sessionData"):
        if not isinstance(getattr(spec, field), str):  # an invalid text of proto2 stays bytes
            raise InvalidConfig(
                obj=f"session {message.sessionIdentifier}",
                field=f"spec.{field}",
                problem="is not UTF-8",
                fix="send it as UTF-8",
            )
    return OpenRequest(
        id=message.sessionIdentifier,
        pod_id=message.podIdentifier,
        application=spec.applicationName,
        data=spec.sessionData.encode(),
        kills_instance=spec.killInstanceWhenSessionClosed,
        open_timeout_seconds=float(spec.openTimeoutSeconds or _OPEN_SECONDS),
        close_grace_seconds=float(spec.closeGracePeriodSeconds or _CLOSE_SECONDS),
        origin=FORNAX,
        uid=session.metadata.uid,
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


async def _all(waits: Sequence[Awaitable[object]]) -> None:
    await asyncio.gather(*waits)
