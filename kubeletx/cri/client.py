"""One gRPC connection to a CRI (or containerd) server.

`call` and `stream` have message objects as requests and answers, and raise errors of `kubeletx.api`. `call_bytes` and
`stream_bytes` have encoded messages, and raise the server's status as `CriStatusError`. Nothing is retried here, and
no call waits until an absent server is back: the agent decides about retries.

Deadlines: if the caller uses `asyncio.timeout`, its expiry cancels the call at the server too. `timeout_seconds` is the
gRPC deadline that the server gets with the call.

`close` ends calls that are in flight. grpc.aio reports that as a cancellation of the waiting task; this module
distinguishes it from a real cancellation and raises Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kubeletx.api import Internal, KubeletxError, Unavailable

from .errors import CriStatusError, raw, translate
from .methods import METHODS, Method
from .tracing import CURRENT_SPAN
from .url import Target, parse_url

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
T = TypeVar("T")

Metadata = tuple[tuple[str, str], ...]

MAX_RECEIVE_BYTES = 16 << 20
"""Maximum size of an answer, as in the kubelet. Lists of large nodes exceed gRPC's default of 4 MiB."""

DEADLINE_SECONDS = 86_400.0
"""gRPC deadline of calls whose caller sets a shorter one with `asyncio.timeout`."""

OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    # Go servers refuse the socket's path as authority.
    ("grpc.default_authority", "localhost"),
    # Reconnect within a second after the server is back; the default back-off grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name, this is the time limit of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Each client has its own connection, so that a connection that hangs does not affect other runtimes.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)

TCP_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Detects a dead peer. Go servers close connections that send pings more often than every 5 minutes.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class CriClient:
    """gRPC connection to one CRI or containerd endpoint; usable by any task of one event loop."""

    def __init__(self, url: str) -> None:
        """`url`: endpoint URL as in `url.py`; its parameters are ignored. The first call connects, not this method."""
        self.target: Target = parse_url(url)
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Callable[..., Any]] = {}
        self._closed = False

    @property
    def endpoint(self) -> str:
        """The URL without parameters, for error messages."""
        return self.target.location

    def open(self) -> None:
        """Allow calls again after `close`. Does not connect."""
        self._closed = False

    async def close(self) -> None:
        """Close the connection. Calls in flight fail, and so do later calls until the next `open`. Idempotent."""
        self._closed = True
        channel, self._channel = self._channel, None
        # They belong to the old channel: `_prepare` makes new ones after the next `open`.
        self._calls.clear()
        if channel is not None:
            # None: calls in flight end now; with a grace period `close` would wait for event streams, which never end.
            await channel.close(grace=None)

    async def call(
        self,
        method: Method[Q, A],
        request: Q,
        *,
        timeout_seconds: float | None = None,
        metadata: Metadata | None = None,
    ) -> A:
        """Make a unary call and return the decoded answer. Raises errors of `kubeletx.api`.

        `timeout_seconds`: gRPC deadline; None: none. `metadata`: gRPC headers, such as containerd's namespace.
        """
        answer: A = await self._unary(
            method.path, method, request, timeout_seconds, self._translated, metadata
        )
        return answer

    async def call_bytes(self, method: str, request: bytes, *, timeout_seconds: float | None = None) -> bytes:
        """Make a unary call with an encoded request, and return the encoded answer. Raises CriStatusError.

        `method`: name of a CRI method such as RunPodSandbox, or a full gRPC path.
        """
        path = path_of(method)
        answer: bytes = await self._unary(f"bytes:{path}", None, request, timeout_seconds, _raw)
        return answer

    def stream(
        self,
        method: Method[Q, A],
        request: Q,
        *,
        timeout_seconds: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[A]:
        """Make a server-streaming call and yield its decoded answers. Parameters and errors: as for `call`."""
        return self._stream(method.path, method, request, timeout_seconds, self._translated, metadata)

    def stream_bytes(
        self, method: str, request: bytes, *, timeout_seconds: float | None = None
    ) -> AsyncIterator[bytes]:
        """Make a server-streaming call with an encoded request, and yield the encoded answers.

        Parameters and errors: as for `call_bytes`.
        """
        path = path_of(method)
        return self._stream(f"bytes:{path}", None, request, timeout_seconds, _raw)

    async def _unary(
        self,
        key: str,
        method: Method[Any, Any] | None,
        request: object,
        timeout: float | None,
        failed: Callable[[str, grpc.aio.AioRpcError], KubeletxError],
        metadata: Metadata | None = None,
    ) -> Any:
        multicallable = self._calls.get(key) or self._prepare(key, method, streaming=False)
        if (span := CURRENT_SPAN.get()) is not None:  # the server continues the trace of a pod's start
            metadata = (*(metadata or ()), ("traceparent", span.traceparent))
        try:
            return await multicallable(request, timeout=timeout, metadata=metadata)
        except grpc.aio.AioRpcError as err:
            raise failed(key, err) from err
        # `close` cancels calls in flight, and grpc.aio raises that here too; only a cancellation of this task may pass.
        except asyncio.CancelledError as err:
            if _task_is_cancelled():
                raise
            raise self._gone(key) from err
        # The channel was closed between `_prepare` and the call.
        except grpc.aio.UsageError as err:
            raise self._gone(key) from err

    async def _stream(
        self,
        key: str,
        method: Method[Any, Any] | None,
        request: object,
        timeout: float | None,
        failed: Callable[[str, grpc.aio.AioRpcError], KubeletxError],
        metadata: Metadata | None = None,
    ) -> AsyncIterator[Any]:
        multicallable = self._calls.get(key) or self._prepare(key, method, streaming=True)
        call = None
        try:
            call = multicallable(request, timeout=timeout, metadata=metadata)
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as err:
            raise failed(key, err) from err
        except asyncio.CancelledError as err:
            if _task_is_cancelled():
                raise
            raise self._gone(key) from err
        except grpc.aio.UsageError as err:
            raise self._gone(key) from err
        finally:
            # A consumer that stops reading would leave the stream open at the server.
            if call is not None:
                call.cancel()

    def _prepare(self, key: str, method: Method[Any, Any] | None, *, streaming: bool) -> Callable[..., Any]:
        """Create and cache the function that calls one gRPC method. The first call of `_prepare` opens the channel.

        `key`: path of the method; with the prefix ``bytes:`` if messages are not decoded, and `method` is None.
        """
        if self._closed:
            raise self._gone(key)
        if self._channel is None:
            options = OPTIONS + (TCP_OPTIONS if self.target.scheme == "tcp" else ())
            self._channel = grpc.aio.insecure_channel(self.target.address, options=options)
        make: Callable[..., Any] = self._channel.unary_stream if streaming else self._channel.unary_unary
        path = key.removeprefix("bytes:")
        if method is None:
            made: Callable[..., Any] = make(path)
        else:
            made = make(
                path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
        self._calls[key] = made
        return made

    def _translated(self, key: str, err: grpc.aio.AioRpcError) -> KubeletxError:
        return translate(err, method=key, endpoint=self.endpoint)

    def _gone(self, key: str) -> KubeletxError:
        if key.startswith("bytes:"):
            return CriStatusError("UNAVAILABLE", f"the connection to {self.endpoint} was closed")
        return Unavailable(f"the connection to {self.endpoint} was closed")


def path_of(method: str) -> str:
    """Return the gRPC path of the CRI method with this name. A path, which begins with ``/``, is returned unchanged.

    Raises Internal if CRI has no such method.
    """
    if method.startswith("/"):
        return method
    known = METHODS.get(method)
    if known is None:
        raise Internal(f"CRI v1 has no method {method!r}")
    return known.path


def _raw(_key: str, err: grpc.aio.AioRpcError) -> KubeletxError:
    return raw(err)


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
