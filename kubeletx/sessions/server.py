"""The session service: gRPC with mutual TLS, on a Unix socket that is mounted into pods, and on a TCP address.

    client certificate ─► UID of the pod ─► Instance: getMessage reads its stream, putMessage reports states

An instance reports only for its own pod: the certificate decides, and a message that names another pod is refused with
PERMISSION_DENIED. gRPC itself refuses a connection whose certificate is missing, expired, not valid yet or of another
CA. One instance cannot take the service from others: it has a limit of open calls, and a rate above which its
messages are answered later; its own stream has a bounded queue (`streams`) behind HTTP/2 flow control.

The server sends no keepalive pings: a frozen client would not answer them, and its connection would be closed.
This module is imported when the server starts, so that an agent without sessions does not load grpc for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import msgspec
import structlog
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from kubeletx.api import Clock, InvalidConfig, KubeletxError, PermissionDenied, PodUid, Unavailable
from kubeletx.api.errors import row_of

from .certificates import SignedPair
from .instance import Instance
from .stubs import session_service_pb2 as pb

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
M = TypeVar("M", bound=Message)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SessionService"].full_name
MAX_BYTES: Final = 512 * 1024
"""Size limit of one message of an instance: enough for a thousand clients with the longest names."""

NO_KEEPALIVE: Final = 2**31 - 1
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    # Also switches off TCP_USER_TIMEOUT, which closes the connection of a guest that is paused.
    ("grpc.keepalive_time_ms", NO_KEEPALIVE),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.so_reuseport", 0),  # a second server on the address would get half of the connections
)
MAX_REPORTS: Final = 20
"""Refusals of one instance that are logged, each once."""
EMPTY: Final = Empty().SerializeToString()


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one instance.

    `calls`: open calls at once; more are refused after `refusal_seconds`, which slows a caller in a loop down.
    `per_second`: messages and new streams that are answered without delay in the long run; `burst`: the number that may come at once.
    """

    calls: int = 32
    per_second: float = 50.0
    burst: int = 500
    refusal_seconds: float = 1.0


class _Caller:
    """Open calls of one instance, the monotonic time of its next answer, and its refusals that were logged."""

    def __init__(self) -> None:
        self.calls = 0
        self.next_at = 0.0
        self._logged: set[str] = set()

    def delay(self, now: float, limits: CallLimits) -> float:
        """Count one message; return the seconds by which its answer is delayed."""
        self.next_at = max(self.next_at, now - limits.burst / limits.per_second) + 1 / limits.per_second
        return max(0.0, self.next_at - now)

    def is_news(self, error: KubeletxError) -> bool:
        if str(error) in self._logged or len(self._logged) >= MAX_REPORTS:
            return False
        self._logged.add(str(error))
        return True


class SessionServer:
    """Serves the instances of one node."""

    def __init__(
        self,
        *,
        find: Callable[[PodUid], Instance | None],
        ca: bytes,
        pair: SignedPair,
        clock: Clock,
        limits: CallLimits | None = None,
    ) -> None:
        """`find`: the instance of a pod, None if the pod is gone. `ca`: PEM; `pair`: certificate of the server."""
        self._find = find
        self._clock = clock
        self._limits = limits or CallLimits()
        self._credentials = grpc.ssl_server_credentials(
            [(pair.key, pair.certificate)], root_certificates=ca, require_client_auth=True
        )
        self._callers: dict[PodUid, _Caller] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self, socket: Path, address: str | None = None) -> int:
        """Listen on the Unix socket, which is replaced, and on ``HOST:PORT`` if given; return the TCP port.

        Returns 0 without an address. Raises Unavailable if it cannot listen.
        """
        server = grpc.aio.server(options=OPTIONS)
        methods = {
            "getMessage": grpc.unary_stream_rpc_method_handler(self._get_message),
            "putMessage": grpc.unary_unary_rpc_method_handler(self._put_message),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            self._listen_on(server, socket)
            port = self._add(server, address) if address else 0
        except Unavailable:
            await server.start()  # only a server that has started releases its sockets
            await server.stop(None)
            raise
        await server.start()
        self._server = server
        return port

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def forget(self, uid: PodUid) -> None:
        """Drop what is kept about the calls of a pod that is gone."""
        self._callers.pop(uid, None)

    def _listen_on(self, server: grpc.aio.Server, socket: Path) -> None:
        self._add(server, f"unix:{socket}")
        # Containers connect with any user ID; the directories above admit only the agent and who has the mount.
        socket.chmod(0o666)

    def _add(self, server: grpc.aio.Server, address: str) -> int:
        try:
            return server.add_secure_port(address, self._credentials)
        except RuntimeError as err:
            raise Unavailable(
                f"session service: cannot listen on {address}; see whether it is in use or too long"
            ) from err

    async def _get_message(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        async with self._call(context) as (instance, caller):
            await self._slow_down(caller)
            _check_pod(instance, "podId", _parse(pb.PodIdentifier, request).podId)
            stream = instance.attach()
            try:
                await context.send_initial_metadata((("pod", instance.pod_id),))
                async for message in stream:
                    yield message.SerializeToString()
            finally:
                stream.end()

    async def _put_message(self, request: bytes, context: Context) -> bytes:
        async with self._call(context) as (instance, caller):
            await self._slow_down(caller)
            message = _parse(pb.SessionMessage, request)
            _check_pod(instance, "sessionIdentifier.podId", message.sessionIdentifier.podId)
            if not message.sessionIdentifier.identifier:
                raise InvalidConfig(
                    field="sessionIdentifier.identifier", problem="is empty", fix="name the session"
                )
            instance.received(message)
        return EMPTY

    async def _slow_down(self, caller: _Caller) -> None:
        if delay := caller.delay(self._clock.monotonic(), self._limits):
            await self._clock.sleep(delay)

    @asynccontextmanager
    async def _call(self, context: Context) -> AsyncIterator[tuple[Instance, _Caller]]:
        """Find the caller by its certificate, count the call, and turn errors into the call's status."""
        (name,) = context.auth_context()["x509_common_name"]
        uid = PodUid(name.decode())
        instance = self._find(uid)
        if instance is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"pod {uid} has no sessions on this node")
        caller = self._callers.setdefault(uid, _Caller())
        if caller.calls >= self._limits.calls:
            await self._clock.sleep(self._limits.refusal_seconds)
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the pod has {self._limits.calls} open calls; end some"
            )
        caller.calls += 1
        try:
            yield instance, caller
        except KubeletxError as error:
            if caller.is_news(error):
                log.warning(
                    "Refused a message of an instance", pod=instance.pod_id, pod_uid=uid, err=str(error)
                )
            await context.abort(grpc.StatusCode[row_of(error).grpc_code], str(error))
        finally:
            caller.calls -= 1


def _check_pod(instance: Instance, field: str, found: str) -> None:
    """An empty field means the caller's own pod."""
    if found and found != instance.pod_id:
        raise PermissionDenied(f"{field}: {found!r} is not the pod of this certificate, {instance.pod_id}")


def _parse(kind: type[M], data: bytes) -> M:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as err:
        name = kind.DESCRIPTOR.name
        raise InvalidConfig(
            field=name, problem="cannot be decoded", fix="send the message of protobuf"
        ) from err
    return message
