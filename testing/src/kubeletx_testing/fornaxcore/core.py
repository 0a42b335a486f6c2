"""`FornaxCore`: a simulated core that uses the published protocol and behaves as a real one.

    async with FornaxCore(CoreSettings(create_seconds=5)) as core:
        ...                                            # start a node with --fornaxcore-url core.address
        await core.wait_for(lambda: core.ready_nodes())
        core.create_pod(PodRequest(name="web", application="shop", spec={...}))
        await core.wait_for(lambda: core.state.pods["default/web"].phase == "Running")
        core.history.check()

Order on a stream: NODE_FULL_SYNC at once; NODE_CONFIGURATION after each NODE_REGISTER; then commands. A message to
a node without a stream is lost. Messages of one node have effect in the order of their calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import grpc

from kubeletx.api.errors import AlreadyExists, Conflict, NotFound, TimedOut
from kubeletx.api.host import Clock
from kubeletx.api.waiting import SystemClock
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

from ..apiserver.line import Line
from . import objects
from .cluster import Cluster
from .faults import Action, Direction, Fault, Faults
from .history import History, Seen
from .objects import PodRequest, SessionRequest
from .server import CoreServer
from .settings import CoreSettings
from .state import UNFINISHED, CoreState, NodeView, PodView, SessionView


class FornaxCore:
    """One core. Use it in one event loop only. `cluster`: None: a cluster of its own."""

    def __init__(
        self,
        settings: CoreSettings = CoreSettings(),  # noqa: B008 - frozen
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.cluster = cluster or Cluster()
        self.cluster.cores[settings.name] = self
        self.history = History()
        self.state = CoreState(self.history)
        self.faults = Faults()
        self._clock = clock or SystemClock()
        self._server = CoreServer(settings, self._get_message, self._put_message)
        self._streams: dict[str, asyncio.Queue[bytes]] = {}
        self._held: dict[tuple[Direction, str], pb.FornaxCoreMessage] = {}
        self._timers: dict[tuple[str, str], Callable[[], None]] = {}
        self._delayed: list[Callable[[], None]] = []
        self._waiters: list[asyncio.Future[None]] = []

    # Life

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._forget_timers()
        await self._server.stop()

    @property
    def address(self) -> str:
        """HOST:PORT for --fornaxcore-url."""
        return f"{self._server.host}:{self._server.port}"

    @property
    def identity(self) -> pb.FornaxCore:
        """The core as a FornaxCoreConfiguration names it."""
        return pb.FornaxCore(ip=self.address, identifier=self.settings.name)

    async def restart(self, seconds: float = 0) -> None:
        """Break all connections, forget everything, and serve again after `seconds`."""
        await self._server.stop_serving()
        self._forget_timers()
        self.state = CoreState(self.history)
        self._held.clear()
        if seconds:
            await self._clock.sleep(seconds)
        await self._server.serve()
        self._wake()

    @property
    def line(self) -> Line:
        """Connections of the nodes: `hold` makes them silent without closing them, `cut_after(0)` breaks them."""
        return self._server.line

    # What tests ask

    async def wait_for(self, holds: Callable[[], object], seconds: float = 60, what: str = "") -> None:
        """Wait until `holds` returns a true value; asked after each message and timer. Raises TimedOut."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError as error:
            last = [
                f"{one.direction.value} {one.kind} {one.about} {one.value}"
                for one in self.history.seen
                if one.kind != "UNSPECIFIED"
            ]
            raise TimedOut(
                f"{what or 'it'} did not happen within {seconds:g} s; last messages: {last[-10:]}"
            ) from error

    def ready_nodes(self) -> list[NodeView]:
        """Nodes that may get pods, of which this core is the owner."""
        return [
            one
            for one in self.state.nodes.values()
            if one.is_ready and self.is_connected(one.identifier) and self.owns(one.identifier)
        ]

    def is_connected(self, node: str) -> bool:
        """Return True if the node has an open stream."""
        return node in self._streams

    def owns(self, node: str) -> bool:
        """Return True if this core is the primary of the node."""
        return self.cluster.owner(node) is self

    def pod(self, id: str) -> PodView:
        """Return the pod. Raises NotFound."""
        if id not in self.state.pods:
            raise NotFound(f"pod {id} does not exist in {self.settings.name}")
        return self.state.pods[id]

    def session(self, id: str) -> SessionView:
        """Return the session. Raises NotFound."""
        if id not in self.state.sessions:
            raise NotFound(f"session {id} does not exist in {self.settings.name}")
        return self.state.sessions[id]

    # Commands

    def create_pod(self, request: PodRequest) -> PodView:
        """Send a POD_CREATE. Raises AlreadyExists, InvalidPod, and Conflict if no node is ready."""
        if request.id in self.state.pods:
            raise AlreadyExists(f"pod {request.id} exists in {self.settings.name}")
        node = request.node or self._choose_node()
        create = objects.make_create(request, node, self._clock.now())
        view = self.state.pods[request.id] = PodView(create.pod, node)
        view.requested_at = self._clock.monotonic()
        self.send(node, pb.FornaxCoreMessage(podCreate=create))
        self._after("create", view.id, self.settings.create_seconds, self._create_timed_out)
        return view

    def terminate_pod(self, id: str) -> PodView:
        """Send a POD_TERMINATE, and repeat it until the pod has ended. Raises NotFound."""
        view = self.pod(id)
        view.is_deleting = True
        self._terminate(id)
        return view

    def hibernate_pod(self, id: str) -> PodView:
        """Send a POD_HIBERNATE. Raises NotFound."""
        view = self.pod(id)
        self.send(view.node, pb.FornaxCoreMessage(podHibernate=pb.PodHibernate(podIdentifier=id)))
        return view

    def activate_pod(self, id: str) -> PodView:
        """Send a POD_ACTIVE. Raises NotFound."""
        view = self.pod(id)
        self.send(view.node, pb.FornaxCoreMessage(podActive=pb.PodActive(podIdentifier=id)))
        return view

    def open_session(self, request: SessionRequest) -> SessionView:
        """Send a SESSION_OPEN. Raises AlreadyExists, NotFound, and Conflict if the application has no idle pod."""
        found = self.state.sessions.get(request.id)
        if found is not None and found.is_live:
            raise AlreadyExists(f"session {request.id} is {found.status}")
        pod = self._idle_pod(request.application) if request.pod is None else self.pod(request.pod)
        session = objects.make_session(request, pod.pod, self._clock.now())
        view = self.state.sessions[request.id] = SessionView(session, pod.id, pod.node)
        pod.sessions.add(view.id)
        view.requested_at = self._clock.monotonic()
        opening = pb.SessionOpen(sessionIdentifier=view.id, podIdentifier=pod.id, session=session)
        self.send(pod.node, pb.FornaxCoreMessage(sessionOpen=opening))
        seconds = request.openTimeoutSeconds or self.settings.open_seconds
        self._after("open", view.id, seconds, self._open_timed_out)
        return view

    def close_session(self, id: str) -> SessionView:
        """Send a SESSION_CLOSE, and repeat it until the session has ended. Raises NotFound."""
        view = self.session(id)
        if view.is_live:
            view.session.status.sessionStatus = "Closing"
        self._close(id)
        return view

    def send(self, node: str, message: pb.FornaxCoreMessage) -> bool:
        """Send any message to a node. Returns False if the node has no stream; the message is then lost."""
        body = message.WhichOneof("MessageBody")
        if body is not None and message.messageType == pb.UNSPECIFIED:
            number: Any = message.DESCRIPTOR.fields_by_name[body].number
            message.messageType = number
        if not message.nodeIdentifier.identifier:
            message.nodeIdentifier.identifier = node
        owners = self.cluster.take_unannounced(node)
        if owners is not None:
            message.ownership.CopyFrom(owners)
        fault = self.faults.take(Direction.OUT, _kind(message), node)
        if fault is None:
            return self._push(node, message, "")
        self._with_fault(fault, node, message)
        return True

    # Timers

    def _after(self, kind: str, id: str, seconds: float, expired: Callable[[str], None]) -> None:
        def due() -> None:
            self._timers.pop((kind, id), None)
            expired(id)
            self._wake()

        if (cancel := self._timers.pop((kind, id), None)) is not None:
            cancel()
        self._timers[kind, id] = self._clock.call_at(self._clock.monotonic() + seconds, due)

    def _create_timed_out(self, id: str) -> None:
        view = self.state.pods.get(id)
        if view is not None and view.running_at is None:
            self.history.counts["create timed out"] += 1
            view.is_deleting = True
            self._terminate(id)

    def _terminate(self, id: str) -> None:
        view = self.state.pods.get(id)
        if view is not None and self.owns(view.node):
            self.send(view.node, pb.FornaxCoreMessage(podTerminate=pb.PodTerminate(podIdentifier=id)))
            self._after("terminate", id, self.settings.terminate_repeat_seconds, self._terminate)

    def _open_timed_out(self, id: str) -> None:
        view = self.state.sessions.get(id)
        if view is not None and view.status == "Starting":
            self.history.counts["open timed out"] += 1
            self.state.end_session(view, "Timeout", self._clock.monotonic())
            self._send_close(view)

    def _close(self, id: str) -> None:
        view = self.state.sessions.get(id)
        if view is not None and view.is_live:
            self._send_close(view)
            self._after("close", id, self.settings.close_repeat_seconds, self._close)

    def _send_close(self, view: SessionView) -> None:
        closing = pb.SessionClose(sessionIdentifier=view.id, podIdentifier=view.pod)
        self.send(view.node, pb.FornaxCoreMessage(sessionClose=closing))

    def _forget_timers(self) -> None:
        for cancel in (*self._timers.values(), *self._delayed):
            cancel()
        self._timers.clear()
        self._delayed.clear()

    # Scheduling

    def _choose_node(self) -> str:
        """Return the ready node with the fewest pods."""
        nodes = self.ready_nodes()
        if not nodes:
            raise Conflict(f"{self.settings.name} has no ready node")
        used = [pod.node for pod in self.state.pods.values()]
        return min(nodes, key=lambda one: used.count(one.identifier)).identifier

    def _idle_pod(self, application: str) -> PodView:
        for pod in self.state.pods.values():
            if pod.application == application and pod.is_idle and self.is_connected(pod.node):
                return pod
        raise Conflict(f"application {application!r} has no idle pod; create one")

    # Streams and calls

    async def _get_message(self, request: pb.NodeIdentifier, context: Any) -> AsyncIterator[bytes]:
        node = request.identifier
        if node in self._streams:
            self.history.counts["second stream refused"] += 1
            await context.abort(grpc.StatusCode.UNKNOWN, f"node {node} already has a stream")
        stream = self._streams[node] = asyncio.Queue()
        self.state.excuse(node, "stream opened")
        self.send(node, pb.FornaxCoreMessage(nodeFullSync=pb.NodeFullSync()))
        self._wake()
        try:
            while True:
                yield await stream.get()
        finally:
            if self._streams.get(node) is stream:
                del self._streams[node]
            self._wake()

    async def _put_message(self, message: pb.FornaxCoreMessage, context: Any) -> bytes:
        node = message.nodeIdentifier.identifier
        fault = self.faults.take(Direction.IN, _kind(message), node)
        if fault is None:
            self._take(message)
            held = self._held.pop((Direction.IN, node), None)
            if held is not None:
                self.state.excuse(node, "reordered")
                self._take(held)
            return b""
        self.state.excuse(node, fault.action.value)
        if fault.action is Action.FAIL:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "fault of the simulator")
        self._with_fault(fault, node, message)
        return b""

    def _with_fault(self, fault: Fault, node: str, message: pb.FornaxCoreMessage) -> None:
        """Let a fault have effect on a message of either direction."""

        def pass_on() -> None:
            if fault.direction is Direction.OUT:
                self._push(node, message, fault.action.value)
            else:
                self.state.excuse(node, fault.action.value)
                self._take(message)

        match fault.action:
            case Action.DROP | Action.FAIL:
                self._note(fault.direction, node, message, fault.action.value)
                self._wake()
            case Action.DUPLICATE:
                pass_on()
                pass_on()
            case Action.DELAY:
                due = self._clock.monotonic() + fault.seconds
                self._delayed.append(self._clock.call_at(due, pass_on))
            case Action.REORDER:
                self._held[fault.direction, node] = message

    def _push(self, node: str, message: pb.FornaxCoreMessage, note: str) -> bool:
        stream = self._streams.get(node)
        self._note(Direction.OUT, node, message, note if stream is not None else "lost, no stream")
        if stream is None:
            return False
        stream.put_nowait(message.SerializeToString())
        held = self._held.pop((Direction.OUT, node), None)
        if held is not None:
            self._push(node, held, Action.REORDER.value)
        return True

    def _take(self, message: pb.FornaxCoreMessage) -> None:
        """Do what a real core does with a message of a node."""
        identifier, at = message.nodeIdentifier.identifier, self._clock.monotonic()
        node = self.state.node(identifier)
        note, terminate = "", set[str]()
        match message.WhichOneof("MessageBody"):
            case "nodeRegistry" if not self.owns(identifier):
                note = "not the owner"
                owners = self.cluster.configuration(identifier)
                self.send(identifier, pb.FornaxCoreMessage(fornaxCoreConfiguration=owners))
            case "nodeRegistry":
                self.state.take_registration(node, message.nodeRegistry)
                self.send(identifier, pb.FornaxCoreMessage(nodeConfiguration=self._configuration(node)))
            case "nodeReady":
                note, terminate = self.state.take_list(node, message.nodeReady, at)
            case "nodeState":
                note, terminate = self.state.take_list(node, message.nodeState, at)
            case "podState":
                note, terminate = self.state.take_pod(node, message.podState, at)
            case "sessionState":
                note = self.state.take_session(node, message.sessionState, at)
            case _:
                note = "type not handled"
        self._note(Direction.IN, identifier, message, note)
        if note == UNFINISHED:
            self.send(identifier, pb.FornaxCoreMessage(nodeFullSync=pb.NodeFullSync()))
        for id in terminate:
            self._terminate(id)
        self._wake()

    def _configuration(self, node: NodeView) -> pb.NodeConfiguration:
        configuration = pb.NodeConfiguration(clusterDomain=self.settings.cluster_domain, node=node.node)
        spec = configuration.node.spec
        spec.podCIDR = self.settings.pod_cidr
        del spec.podCIDRs[:]
        spec.podCIDRs.append(self.settings.pod_cidr)
        for value in self.settings.daemon_pods:
            objects.fill(configuration.daemonPods.add(), value)
        return configuration

    def _note(self, direction: Direction, node: str, message: pb.FornaxCoreMessage, note: str) -> None:
        about, value, revision = _about(message)
        self.history.add(
            Seen(
                self._clock.monotonic(),
                direction,
                node,
                _kind(message),
                about or node,
                value,
                revision,
                note,
                message if self.settings.keep_messages else None,
            )
        )

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _kind(message: pb.FornaxCoreMessage) -> str:
    """Name of the message type; the number for an unknown one."""
    found = pb.MessageType.DESCRIPTOR.values_by_number.get(message.messageType)
    return str(message.messageType) if found is None else found.name


def _about(message: pb.FornaxCoreMessage) -> tuple[str, str, int]:
    """Return pod or session of a message, its state or status word, and its revision."""
    name = message.WhichOneof("MessageBody")
    body: Any = None if name is None else getattr(message, name)
    match name:
        case "podState":
            return objects.pod_id(body.pod), pb.PodState.State.Name(body.state), body.nodeRevision
        case "sessionState":
            return objects.session_id(body.session), body.session.status.sessionStatus, body.nodeRevision
        case "nodeRegistry" | "nodeReady" | "nodeState":
            return "", body.node.status.phase, body.nodeRevision
        case "sessionOpen" | "sessionClose":
            return body.sessionIdentifier, "", 0
        case "podCreate" | "podTerminate" | "podHibernate" | "podActive":
            return body.podIdentifier, "", 0
    return "", "", 0
