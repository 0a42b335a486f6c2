"""A core with the rules of a published one, in the test's process; a double of the node's content; both connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from msgspec.structs import replace

from kubeletx.api import Unavailable
from kubeletx.api.waiting import SystemClock
from kubeletx.fornax import wire
from kubeletx.fornax.cores import parse_seeds
from kubeletx.fornax.link import LinkSettings
from kubeletx.fornax.mailbox import Mailbox
from kubeletx.fornax.node_actor import CoreSettings, NodeActor
from kubeletx.fornax.node_records import METADATA, NodeRecords
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as k8s
from kubeletx.fornax.views import LinkStatus
from kubeletx.store import Store
from kubeletx_testing.fornaxcore import FornaxCore
from kubeletx_testing.waiting import until

NODE = "fornax.centaurusinfra.io/node-1"
REVISION = "noderevision.core.fornax-serverless.centaurusinfra.io"
QUICK = CoreSettings(
    link=LinkSettings(
        connect_seconds=30.0,
        greeting_seconds=2.0,
        put_seconds=30.0,
        probe_seconds=1000.0,
        register_seconds=0.05,
        retry_seconds=0.01,
        max_retry_seconds=0.1,
    ),
    state_seconds=1000.0,
    look_seconds=0.02,
    block=10,
)


class TinyCore:
    """A core: it keeps what nodes report, and asks for a full state when a revision does not follow the last one."""

    def __init__(self, identifier: str = "core") -> None:
        self.identifier = identifier
        self.configuration: pb.NodeConfiguration | None = pb.NodeConfiguration(clusterDomain="fornax.local")
        """Answer to a registration; None: the core does not answer."""
        self.log: list[pb.FornaxCoreMessage] = []
        self.revision = -1
        self.pods: dict[str, pb.PodState] = {}
        self.sessions: dict[str, pb.SessionState] = {}
        self.node = k8s.Node()
        self.asked_full = 0
        self.streams = 0
        self.refused_streams = 0
        self.refuse_streams = False
        self.failing: list[grpc.StatusCode] = []
        """Codes of the next calls, which take no effect."""
        self.losing: list[grpc.StatusCode] = []
        """Codes of the next calls, which take effect nevertheless."""
        self.answering = asyncio.Event()
        """Clear: calls get no answer."""
        self.answering.set()
        self._outgoing: asyncio.Queue[pb.FornaxCoreMessage] | None = None
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def is_connected(self) -> bool:
        return self._outgoing is not None

    def kinds(self) -> list[str]:
        """Types of the messages so far, without probes."""
        return [pb.MessageType.Name(message.messageType) for message in self.log if message.messageType]

    def last(self, kind: int) -> pb.FornaxCoreMessage:
        return next(message for message in reversed(self.log) if message.messageType == kind)

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        server = grpc.aio.server(options=wire.CHANNEL_OPTIONS)
        handlers = {
            "getMessage": grpc.unary_stream_rpc_method_handler(
                self._get, pb.NodeIdentifier.FromString, pb.FornaxCoreMessage.SerializeToString
            ),
            "putMessage": grpc.unary_unary_rpc_method_handler(
                self._put, pb.FornaxCoreMessage.FromString, lambda _: b""
            ),
        }
        name = wire.GET_MESSAGE.split("/")[1]
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        address = f"127.0.0.1:{self._port}"
        if credentials is None:
            self._port = server.add_insecure_port(address)
        else:
            self._port = server.add_secure_port(address, credentials)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        self._outgoing = None

    def forget(self) -> None:
        """Lose everything about the node, as a core without a store does when it restarts."""
        self.revision = -1
        self.pods.clear()
        self.sessions.clear()

    def send(self, kind: int, *, node: str = NODE, **body: Any) -> None:
        """Send a message to the node, which has an open stream."""
        assert self._outgoing is not None
        identity = pb.NodeIdentifier(identifier=node)
        self._outgoing.put_nowait(pb.FornaxCoreMessage(nodeIdentifier=identity, messageType=kind, **body))  # type: ignore[arg-type] # an enum value is an int

    async def _get(
        self, node: pb.NodeIdentifier, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.FornaxCoreMessage]:
        if self._outgoing is not None or self.refuse_streams:
            self.refused_streams += 1
            await context.abort(grpc.StatusCode.UNKNOWN, "the node has a stream already")
        self.streams += 1
        mine = self._outgoing = asyncio.Queue()
        try:
            self._ask_full()
            while True:
                yield await mine.get()
        finally:
            if self._outgoing is mine:
                self._outgoing = None

    def _ask_full(self) -> None:
        if self._outgoing is not None:
            self.asked_full += 1
            self.send(pb.NODE_FULL_SYNC, nodeFullSync=pb.NodeFullSync())

    async def _put(self, message: pb.FornaxCoreMessage, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        await self.answering.wait()
        if self.failing:
            await context.abort(self.failing.pop(0), "a fault of the test")
        self._take(message)
        if self.losing and message.messageType:
            await context.abort(self.losing.pop(0), "a fault of the test")
        return b""

    def _take(self, message: pb.FornaxCoreMessage) -> None:
        assert message.nodeIdentifier.identifier == NODE
        self.log.append(message)
        match message.messageType:
            case pb.NODE_STATE:
                self._full(message.nodeState.nodeRevision, message.nodeState)
            case pb.NODE_READY:
                self._full(message.nodeReady.nodeRevision, message.nodeReady)
            case pb.NODE_REGISTER:
                self.revision = message.nodeRegistry.nodeRevision
                if self.configuration is not None and self._outgoing is not None:
                    self.send(pb.NODE_CONFIGURATION, nodeConfiguration=self.configuration)
            case pb.POD_STATE:
                if self._follows(message.podState.nodeRevision):
                    self.pods[id_of(message.podState.pod)] = message.podState
            case pb.SESSION_STATE:
                if self._follows(message.sessionState.nodeRevision):
                    self.sessions[id_of(message.sessionState.session)] = message.sessionState

    def _full(self, revision: int, state: pb.NodeState | pb.NodeReady) -> None:
        if revision < self.revision and revision != 1:
            self._ask_full()
            return
        self.revision = revision
        self.node = state.node
        self.pods = {id_of(pod.pod): pod for pod in state.podStates}
        self.sessions = {id_of(one.session): one for pod in state.podStates for one in pod.sessionStates}

    def _follows(self, revision: int) -> bool:
        if revision not in (self.revision, self.revision + 1):
            self._ask_full()
            return False
        self.revision = revision
        return True


def id_of(thing: Any) -> str:
    return f"{thing.metadata.namespace}/{thing.metadata.name}"


class ContentModel:
    """Pods with one state each. Implements what the node actor uses of `NodeContent`."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.ready = asyncio.Event()
        self.ready.set()
        self.node_is_ready = True
        self.has_addresses = True
        self.allocatable = "4"
        self.pods: dict[str, int] = {}
        """State by identifier."""
        self.revisions: dict[str, int] = {}
        self.sessions: dict[str, str] = {}
        """Status by identifier; all belong to pod ns/p."""
        self.padding = 0
        self.commands: list[tuple[str, str]] = []
        self.answers: dict[int, bool | Exception] = {}
        self.configured: list[str] = []
        self.configure_fails = 0
        self.may_configure = asyncio.Event()
        self.may_configure.set()
        self.forgotten = 0
        self._mailbox = mailbox

    def set_pod(self, name: str, state: int) -> None:
        self.pods[f"ns/{name}"] = state
        self._mailbox.pod(f"ns/{name}")

    def refuse(self, name: str) -> None:
        self._mailbox.answer(f"ns/{name}")

    def set_session(self, name: str, status: str) -> None:
        self.sessions[f"ns/{name}"] = status
        self._mailbox.session(f"ns/{name}")

    def node(self, revision: int) -> k8s.Node:
        node = k8s.Node()
        node.status.conditions.add(type="Ready", status="True" if self.node_is_ready else "False")
        node.status.allocatable["cpu"].string = self.allocatable
        if self.has_addresses:
            node.status.addresses.add(type="InternalIP", address="192.0.2.7")
        return node

    def is_ready(self) -> bool:
        return self.node_is_ready

    def pod_state(self, pod_id: str, revision: int) -> pb.PodState | None:
        if pod_id not in self.pods:
            return None
        self.revisions[pod_id] = revision
        return self._state(pod_id, revision)

    def session_state(self, session_id: str, revision: int) -> pb.SessionState | None:
        if session_id not in self.sessions:
            return None
        return self._session(session_id, revision)

    async def stored(self) -> None:
        """Do nothing: there is no database."""

    def refused_session(self, session_id: str, revision: int) -> pb.SessionState | None:
        found = pb.SessionState(nodeRevision=revision)
        found.session.metadata.namespace, _, found.session.metadata.name = session_id.partition("/")
        found.session.status.sessionStatus = "Closed"
        return found

    def pod_states(self, revision: int) -> list[pb.PodState]:
        return [self._state(pod_id, revision) for pod_id in self.pods]

    async def configure(self, configuration: pb.NodeConfiguration) -> None:
        await self.may_configure.wait()
        if self.configure_fails:
            self.configure_fails -= 1
            raise Unavailable("the CNI directory is read-only")
        self.configured.append(configuration.clusterDomain)

    async def command(self, message: pb.FornaxCoreMessage, core: str) -> bool:
        self.commands.append((pb.MessageType.Name(message.messageType), core))
        answer = self.answers.get(message.messageType, False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def forget_all(self) -> None:
        self.forgotten += 1
        self.pods.clear()

    def _state(self, pod_id: str, revision: int) -> pb.PodState:
        pod = k8s.Pod()
        pod.metadata.namespace, _, pod.metadata.name = pod_id.partition("/")
        pod.metadata.annotations[REVISION] = str(self.revisions.get(pod_id, revision))
        pod.metadata.annotations["padding"] = "x" * self.padding
        sessions = [self._session(one, revision) for one in self.sessions] if pod_id == "ns/p" else []
        state = pb.PodState(nodeRevision=revision, pod=pod, sessionStates=sessions)
        state.state = self.pods[pod_id]  # type: ignore[assignment] # an enum value is an int
        return state

    def _session(self, session_id: str, revision: int) -> pb.SessionState:
        found = pb.SessionState(nodeRevision=revision)
        found.session.metadata.namespace, _, found.session.metadata.name = session_id.partition("/")
        found.session.status.sessionStatus = self.sessions[session_id]
        return found


class Rig:
    """A node actor over a store, and the cores of a test."""

    def __init__(self, path: Path, settings: CoreSettings) -> None:
        self.path = path
        self.settings = settings
        self.cores: list[TinyCore] = []
        self._store: Store | None = None
        self._task: asyncio.Task[None] | None = None

    async def core(self, identifier: str = "core") -> TinyCore:
        core = TinyCore(identifier)
        await core.start()
        self.cores.append(core)
        return core

    async def start_node(
        self, *seeds: TinyCore | FornaxCore, settings: CoreSettings | None = None, **content: Any
    ) -> None:
        """Start the node; `content`: attributes of the content from the start."""
        self._store = await Store.open(self.path, [METADATA])
        self.records = NodeRecords(self._store)
        mailbox = Mailbox(SystemClock())
        self.content = ContentModel(mailbox)
        for name, value in content.items():
            setattr(self.content, name, value)
        self.actor = NodeActor(
            self.content,  # type: ignore[arg-type] # a double with the methods that the actor calls
            mailbox,
            identity=pb.NodeIdentifier(ip="192.0.2.7", identifier=NODE),
            seeds=parse_seeds([core.address for core in seeds]),
            records=self.records,
            settings=settings or self.settings,
            clock=SystemClock(),
        )
        self._task = asyncio.create_task(self.actor.run(), name="node-actor")

    def status(self, core: TinyCore) -> LinkStatus:
        return self.actor.links[core.address].status()

    async def stop_node(self, *, clean: bool = True) -> None:
        """Stop the node as the agent does. `clean` False: as after a crash, nothing more is written."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if clean:
                await self.actor.close()
        if self._store is not None:
            await self._store.close()

    async def until_ready(self, *cores: TinyCore) -> None:
        await until(lambda: all("NODE_READY" in core.kinds() for core in cores))

    async def until_equal(self, *cores: TinyCore) -> None:
        """Wait until each core has the node's revision, pods and sessions."""

        def is_equal(core: TinyCore) -> bool:
            states = {pod_id: pod.state for pod_id, pod in core.pods.items()}
            return core.revision == self.actor.revisions.current and states == self.content.pods

        await until(lambda: all(is_equal(core) for core in cores))


@asynccontextmanager
async def rig(path: Path, settings: CoreSettings = QUICK) -> AsyncIterator[Rig]:
    made = Rig(path / "kubeletx.db", settings)
    try:
        yield made
    finally:
        await made.stop_node()
        for core in made.cores:
            core.answering.set()
            await core.stop()


def with_link(**changes: float) -> CoreSettings:
    return replace(QUICK, link=replace(QUICK.link, **changes))
