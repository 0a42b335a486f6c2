"""`SmallNode`: a node in a few lines, which sends what a test wants, in the order of a real one."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx_testing.fornaxcore import FornaxCore, names

NODE = "test/node-1"
SERVICE = "/centaurusinfra.io.fornaxcore.service.FornaxCoreService"


class SmallNode:
    """One node with an open stream. `commands` has what the core sent. `revision`: of the last change."""

    def __init__(self, core: FornaxCore, identifier: str = NODE, credentials: Any = None) -> None:
        self.identifier = identifier
        self.commands: asyncio.Queue[pb.FornaxCoreMessage] = asyncio.Queue()
        self.revision = 7
        self._channel = (
            grpc.aio.insecure_channel(core.address)
            if credentials is None
            else grpc.aio.secure_channel(core.address, credentials)
        )
        self._put: Any = self._channel.unary_unary(f"{SERVICE}/putMessage")
        self._get: Any = self._channel.unary_stream(
            f"{SERVICE}/getMessage", response_deserializer=pb.FornaxCoreMessage.FromString
        )
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SmallNode:
        self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._reader is not None
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    def open(self) -> None:
        """Open the stream."""
        self._reader = asyncio.create_task(self._read(), name="small-node")

    async def _read(self) -> None:
        async for message in self._get(pb.NodeIdentifier(identifier=self.identifier).SerializeToString()):
            self.commands.put_nowait(message)

    async def stream_error(self) -> grpc.aio.AioRpcError:
        """Wait until the stream has ended, and return its error."""
        assert self._reader is not None
        (error,) = await asyncio.gather(self._reader, return_exceptions=True)
        assert isinstance(error, grpc.aio.AioRpcError)
        return error

    async def next(self, body: str) -> Any:
        """Return the body of the next command, which has to be of this kind."""
        async with asyncio.timeout(30):
            message = await self.commands.get()
        assert message.WhichOneof("MessageBody") == body
        return getattr(message, body)

    async def put(self, timeout: float = 30, **body: Any) -> None:
        """Send a message."""
        message = pb.FornaxCoreMessage(**body)
        number: Any = message.DESCRIPTOR.fields_by_name[next(iter(body))].number
        message.messageType = number
        message.nodeIdentifier.identifier = self.identifier
        await self._put(message.SerializeToString(), timeout=timeout)

    async def become_ready(self) -> None:
        """Send what a node sends until it may get pods."""
        await self.next("nodeFullSync")
        await self.put(nodeState=pb.NodeState(nodeRevision=self.revision, node=self.node()))
        await self.put(nodeRegistry=pb.NodeRegistry(nodeRevision=self.revision, node=self.node()))
        await self.next("nodeConfiguration")
        self.revision += 1
        await self.put(nodeReady=pb.NodeReady(nodeRevision=self.revision, node=self.node()))

    def node(self) -> Any:
        """A node object that a core accepts."""
        message = pb.NodeRegistry().node
        message.metadata.namespace, _, message.metadata.name = self.identifier.partition("/")
        message.status.phase = "Running"
        message.status.conditions.add(type="Ready", status="True")
        message.status.addresses.add(type="InternalIP", address="127.0.0.1")
        for name in ("cpu", "memory"):
            message.status.allocatable[name].string = "4"
        return message

    def pod(self, create: pb.PodCreate, phase: str = "Running", sessions: str = "") -> pb.PodState:
        """Make the next report about a pod."""
        self.revision += 1
        state = pb.PodState(nodeRevision=self.revision, state=pb.PodState.Running, pod=create.pod)
        state.pod.metadata.annotations[names.REVISION] = str(self.revision)
        if sessions:
            state.pod.metadata.annotations[names.POD_SESSIONS] = sessions
        state.pod.status.phase = phase
        return state

    def session(self, opened: pb.SessionOpen, status: str) -> pb.SessionState:
        """Make the next report about a session."""
        self.revision += 1
        state = pb.SessionState(nodeRevision=self.revision, session=opened.session)
        state.session.status.sessionStatus = status
        return state
