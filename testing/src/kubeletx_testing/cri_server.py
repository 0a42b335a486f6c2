"""`FakeCriServer`: a fake CRI v1 server in the test process, with a real socket.

    async with FakeCriServer(tmp_path) as server:
        server.refuse("RunPodSandbox", grpc.StatusCode.UNKNOWN, "no network")
        held = server.hold("StopContainer")     # hangs until held.set()
        runtime = CriRuntime(endpoint(server.url), None, host)

Its state is a `CriModel`. With a `uuid` it also acts as containerd: it serves containerd's introspection,
events, tasks and containers services. Every request is kept in `calls`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message

from kubeletx.cri.containerd import SERVER, SUBSCRIBE
from kubeletx.cri.containerd_tasks import CREATE_RECORD, TASK_METHODS
from kubeletx.cri.methods import METHODS, Method
from kubeletx.cri.stubs import containerd_events_service_pb2 as events_pb
from kubeletx.cri.stubs import containerd_introspection_pb2 as introspection_pb
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.cri.stubs.containerd_types_pb2 import Envelope

from .cri_model import CriModel, Refusal

_sockets = itertools.count(1)


class CriCall(NamedTuple):
    """One request that the server received."""

    method: str
    request: Any


class FakeCriServer:
    """A fake CRI server, as an async context manager. `stop` and then `start` simulate a restart of the server."""

    def __init__(self, directory: Path, *, uuid: str = "") -> None:
        """`directory`: directory of the socket.

        `uuid`: UUID that the server reports as containerd; empty: it acts as another CRI server, without
        containerd's own services.
        """
        self.path = directory / f"cri-{next(_sockets)}.sock"
        self.model = CriModel()
        self.uuid = uuid
        self.calls: list[CriCall] = []
        self.trace_parents: list[str] = []
        """Header ``traceparent`` of each unary call that had one."""
        self.subscriptions: list[events_pb.SubscribeRequest] = []
        self._refusals: dict[str, list[tuple[int | None, Refusal]]] = defaultdict(list)
        self._gates: dict[str, asyncio.Event] = {}
        self._late_gates: dict[str, asyncio.Event] = {}
        self._queues: dict[str, list[asyncio.Queue[Message | None]]] = defaultdict(list)
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    @property
    def url(self) -> str:
        """Endpoint URL of the server's socket."""
        return f"unix://{self.path}"

    async def start(self) -> None:
        """Make the socket and serve calls on it."""
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((_Handlers(self._serve_unary, self._serve_stream),))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """Break every connection and remove the socket; the state is kept for the next `start`."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
            await server.wait_for_termination()
        self.path.unlink(missing_ok=True)

    async def __aenter__(self) -> FakeCriServer:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for gate in (*self._gates.values(), *self._late_gates.values()):
            gate.set()
        await self.stop()

    def refuse(
        self, method: str, code: grpc.StatusCode, details: str = "", *, times: int | None = None
    ) -> None:
        """Answer the next `times` calls of `method` with an error. `times` None: all calls from now on.

        `code`, `details`: gRPC status and message of the error.
        """
        self._refusals[method].append((times, Refusal(code, details)))

    def hold(self, method: str, *, after_effect: bool = False) -> asyncio.Event:
        """Make calls of `method` wait until the returned event is set.

        They wait before they take effect. `after_effect` True: they take effect, and then wait before they
        answer, as with a lost answer.
        """
        gate = asyncio.Event()
        (self._late_gates if after_effect else self._gates)[method] = gate
        return gate

    def count(self, method: str) -> int:
        """Return the number of calls of `method` that were received."""
        return sum(call.method == method for call in self.calls)

    def last(self, method: str) -> Any:
        """Return the latest request of `method`."""
        return next(call.request for call in reversed(self.calls) if call.method == method)

    async def wait_call(self, method: str) -> None:
        """Wait until the server has received a call of `method`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.count(method) > 0)

    def emit(self, event: pb.ContainerEventResponse) -> None:
        """Send an event to every subscriber of GetContainerEvents."""
        for queue in self._queues["GetContainerEvents"]:
            queue.put_nowait(event)

    def emit_containerd(self, topic: str, event: Message, *, namespace: str = "k8s.io") -> None:
        """Send an event of containerd to the subscribers whose filters match its topic and namespace."""
        envelope = Envelope(topic=topic, namespace=namespace)
        envelope.timestamp.FromNanoseconds(self.model.now_ns())
        envelope.event.type_url = event.DESCRIPTOR.full_name
        envelope.event.value = event.SerializeToString()
        wanted = f'topic=="{topic}",namespace=="{namespace}"'
        for queue, request in zip(self._queues["Subscribe"], self.subscriptions, strict=True):
            if not request.filters or wanted in request.filters:
                queue.put_nowait(envelope)

    async def wait_subscribed(self, method: str) -> None:
        """Wait until a client reads the stream of `method`: GetContainerEvents, or containerd's Subscribe."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._queues[method]))

    async def _serve_unary(self, method: Method[Any, Any], request: Message, context: Any) -> Message | bytes:
        self.trace_parents += [value for key, value in context.invocation_metadata() if key == "traceparent"]
        await self._note(method, request)
        try:
            await _pass(self._gates.get(method.name))
            self._play_refusal(method.name)
            answer = self._answer(method, request)
            await _pass(self._late_gates.get(method.name))
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.details)
        return answer

    async def _serve_stream(
        self, method: Method[Any, Any], request: Message, context: Any
    ) -> AsyncIterator[Message]:
        await self._note(method, request)
        try:
            self._play_refusal(method.name)
            self._check_stream(method)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.details)
        queue: asyncio.Queue[Message | None] = asyncio.Queue()
        if isinstance(request, events_pb.SubscribeRequest):
            self.subscriptions.append(request)
        self._queues[method.name].append(queue)
        await self._notify()
        try:
            while (item := await queue.get()) is not None:
                yield item
        finally:
            self._queues[method.name].remove(queue)
            if isinstance(request, events_pb.SubscribeRequest):
                self.subscriptions.remove(request)

    async def _note(self, method: Method[Any, Any], request: Message) -> None:
        self.calls.append(CriCall(method.name, request))
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _answer(self, method: Method[Any, Any], request: Message) -> Message:
        if method is SERVER:
            if not self.uuid:
                raise Refusal(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
            return introspection_pb.ServerResponse(uuid=self.uuid)
        if method is CREATE_RECORD or method in TASK_METHODS.values():
            if not self.uuid:
                raise Refusal(grpc.StatusCode.UNIMPLEMENTED, f"unknown service of {method.path}")
            answer = self.model.answer_container if method is CREATE_RECORD else self.model.answer_task
            return answer(method.name, request)
        return self.model.answer(method.name, request)

    def _check_stream(self, method: Method[Any, Any]) -> None:
        known = bool(self.uuid) if method is SUBSCRIBE else method.name not in self.model.unimplemented
        if not known:
            raise Refusal(grpc.StatusCode.UNIMPLEMENTED, f"method {method.name} not implemented")

    def _play_refusal(self, name: str) -> None:
        script = self._refusals[name]
        if not script:
            return
        times, refusal = script[0]
        if times is not None:
            script[0] = (times - 1, refusal)
            if times <= 1:
                script.pop(0)
        raise refusal


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its type stubs only
    """gRPC handler table: finds the handler of a method by its path."""

    def __init__(self, unary: Callable[..., Any], stream: Callable[..., Any]) -> None:
        known: list[Method[Any, Any]] = [
            *METHODS.values(),
            *TASK_METHODS.values(),
            CREATE_RECORD,
            SERVER,
            SUBSCRIBE,
        ]
        self._handlers = {method.path: _handler(method, unary, stream) for method in known}

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)


def _handler(method: Method[Any, Any], unary: Callable[..., Any], stream: Callable[..., Any]) -> Any:
    async def one(request: Message, context: Any) -> Message | bytes:
        answer: Message | bytes = await unary(method, request, context)
        return answer

    async def many(request: Message, context: Any) -> AsyncIterator[Message]:
        async for answer in stream(method, request, context):
            yield answer

    make: Callable[..., Any] = (
        grpc.unary_stream_rpc_method_handler if method.stream else grpc.unary_unary_rpc_method_handler
    )
    return make(
        many if method.stream else one,
        request_deserializer=method.request.FromString,
        response_serializer=_serialize,
    )


def _serialize(answer: Message | bytes) -> bytes:
    """Serialise an answer; bytes are sent unchanged, so that a subclass may send invalid messages."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def _pass(gate: asyncio.Event | None) -> None:
    if gate is not None:
        await gate.wait()
