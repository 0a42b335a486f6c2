"""`KubeClient`: requests to one API server.

Connections are kept open and shared. If a request fails because the server had closed a kept connection, aiohttp sends
it again if that is safe. Nothing else is repeated here; the caller decides whether a request may be repeated. Each
request has a deadline. After TimedOut it is unknown whether the server carried the request out.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeletx.api import (
    Clock,
    InvalidConfig,
    PermissionDenied,
    TimedOut,
    Unavailable,
    first_of,
)

from ..text.objects import decode_object
from ..tls_buffers import shrink
from .access import ClusterAccess
from .connections import Connections, Reachability
from .counts import NO_ANSWER, RequestCounts
from .errors import ConnectionLost, error_of, parse_status

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

REQUEST_SECONDS = 30.0
_NOBODY_BEHIND = frozenset({502, 503, 504})
"""Status codes that a load balancer without a live server sends. They do not end an outage."""

Throttle = Callable[[], Awaitable[None]]


class Patch(enum.Enum):
    """Kind of a patch, by its content type. Source: apimachinery, pkg/types/patch.go."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class KubeClient:
    """Client of one API server: typed requests with deadlines. Make it in the event loop that uses it.

    Call `close` at the end.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        clock: Clock,
        user_agent: str = "kubeletx",
        throttle: Throttle | None = None,
        counts: RequestCounts | None = None,
        reach: Reachability | None = None,
    ) -> None:
        """`throttle`: function that is awaited before each request except watches, to limit the rate; None: no limit.

        `counts`: metrics to share with other clients; None: new ones. `reach`: reachability to share with
        other clients of this server; None: a new one.
        """
        self._clock = clock
        self._connections = Connections(access, clock, user_agent, counts or RequestCounts(), reach)
        self._throttle = throttle

    @property
    def access(self) -> ClusterAccess:
        """Address and credentials that this client uses."""
        return self._connections.access

    @property
    def problem(self) -> str:
        """Reason the server does not answer; empty while it answers.

        The client logs an outage once, so callers need not log requests that fail during the outage.
        """
        return self.reach.problem

    @property
    def counts(self) -> RequestCounts:
        """Metrics of this client and of all clients that share the object."""
        return self._connections.counts

    @property
    def reach(self) -> Reachability:
        """Reachability of the server, to share with its other clients."""
        return self._connections.reach

    def lane(self, throttle: Throttle | None) -> KubeClient:
        """Return another client on the same connections, with `throttle` as its rate limit (None: no limit).

        Requests of the returned client do not wait for the rate limit of this one. Close only this client,
        which closes the connections of both.
        """
        beside = copy.copy(self)
        beside._throttle = throttle
        return beside

    async def close(self) -> None:
        """Close all connections, including open streams."""
        await self._connections.close()

    async def reconnect(self) -> None:
        """Close all connections, so that the next request opens a new one. Call it if the server stays silent.

        Open streams end with Unavailable. Requests in progress end with Unavailable too, or at their
        deadlines.
        """
        await self._connections.give_up()

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds` before a retry. Returns early if an outage of the server ends meanwhile."""
        await first_of("api-pause", self._clock.sleep(seconds), self.reach.back.wait())

    async def get(self, path: str, type_: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """Read one object or list. Raises NotFound, PermissionDenied, Unavailable, TimedOut, Internal."""
        return decode(await self.request("GET", path, params=params), type_, path)

    async def create(self, path: str, value: Any, type_: type[T]) -> T:
        return decode(await self.request("POST", path, body=msgspec.json.encode(value)), type_, path)

    async def replace(self, path: str, value: Any, type_: type[T]) -> T:
        """Replace an object; returns it as the server stored it.

        Raises Conflict if the object has another version than `value`.
        """
        return decode(await self.request("PUT", path, body=msgspec.json.encode(value)), type_, path)

    async def patch(self, path: str, value: Any, type_: type[T], *, kind: Patch = Patch.STRATEGIC) -> T:
        """Patch an object; returns it as the server stored it.

        Raises Conflict if the patch contains a `metadata.uid` and the object has another one.
        """
        body = msgspec.json.encode(value)
        return decode(await self.request("PATCH", path, body=body, content_type=kind.value), type_, path)

    async def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete the object. Raises NotFound if it does not exist.

        `uid`, `resource_version`: delete the object only if it has this UID or version, else raise Conflict;
        empty: not checked. `grace_seconds` None: the object's own grace period. `propagation`: Background,
        Foreground or Orphan, for the objects that it owns; empty: the resource's default.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        if wanted := preconditions(uid, resource_version):
            options["preconditions"] = wanted
        await self.request("DELETE", path, body=msgspec.json.encode(options))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        seconds: float = REQUEST_SECONDS,
        longest_seconds: float = 0.0,
    ) -> bytes:
        """Make a request and return the body of a successful answer. `path`: as `Resource.path` returns it.

        `seconds`: deadline of the whole request. If `longest_seconds` is not 0, it is the deadline for reading
        the body, and `seconds` is the deadline only of the answer's head and of each further part of the body.
        """
        counts, host = self._connections.counts, self._connections.host
        if self._throttle is not None:
            began = time.perf_counter()
            await self._throttle()
            counts.throttled.add(time.perf_counter() - began, host, method)
        counts.request_sizes.add(len(body or b""), host, method)
        began = time.perf_counter()
        headers = {} if body is None else {"Content-Type": content_type}
        try:
            async with asyncio.timeout(seconds) as deadline:
                async with self._send(method, path, params, body, headers, began=began) as response:
                    if longest_seconds:
                        answer = await _piece_by_piece(response, deadline, seconds, longest_seconds)
                    else:
                        answer = await response.read()
                    counts.response_sizes.add(len(answer), host, method)
                    return answer
        except TimeoutError as error:
            self._connections.note_answer(f"no answer within {seconds:g} s", began=began)
            raise TimedOut(f"{method} {path}: no answer within {seconds:g} s") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Send a GET request and yield the body of the answer as a stream.

        Only the head of the answer has a deadline. Raises Unavailable if `reconnect` closes the connection.
        """
        until_given_up = asyncio.timeout(None)
        try:
            async with (
                until_given_up,
                self._send("GET", path, params, None, {}, first_seconds=REQUEST_SECONDS) as response,
            ):
                self._connections.streams.add(until_given_up)
                if response.connection is not None:  # None: the whole answer has arrived
                    shrink(response.connection.transport)
                try:
                    yield response.content
                finally:
                    left = response.connection  # None: the body was read to its end
                    if left is not None and left.transport is not None:
                        # Ending TLS in order waits for the server, for up to 30 s.
                        left.transport.abort()
        except TimeoutError as error:
            if not until_given_up.expired():
                raise
            raise Unavailable(f"GET {path}: the connection was abandoned") from error
        finally:
            self._connections.streams.discard(until_given_up)

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: dict[str, str],
        *,
        first_seconds: float | None = None,
        began: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

        what, is_answered = f"{method} {path}", False
        began = time.perf_counter() if began is None else began
        credentials = self._connections.credentials
        try:
            await credentials.refresh()
            session = self._connections.session()
            sent_at, code = time.perf_counter(), NO_ANSWER
            try:
                async with asyncio.timeout(first_seconds):
                    response = await session.request(
                        method,
                        self.access.server + path,
                        params=params,
                        data=body,
                        headers={**headers, **credentials.headers},
                        ssl=credentials.tls or True,
                        server_hostname=self.access.tls_server_name or None,
                        proxy=self.access.proxy_url or None,
                        allow_redirects=False,
                    )
                code = str(response.status)
            finally:
                seconds = time.perf_counter() - sent_at
                self._connections.counts.answered(self._connections.host, method, code, seconds)
            is_answered = True
            if response.status not in _NOBODY_BEHIND or not self.reach.problem:
                self._connections.note_answer("", began=began)
            async with response:
                if not 200 <= response.status < 300:
                    status = parse_status(await response.read())
                    if response.status == 401:
                        credentials.forget()
                    raise error_of(
                        response.status, status, what, retry_after=response.headers.get("Retry-After", "")
                    )
                yield response
        except InvalidConfig as error:  # perhaps a file is being replaced; the next request reads it again
            credentials.forget()
            raise PermissionDenied(f"{what}: {error}") from error
        except TimeoutError as error:
            # Of connecting, or of the answer's head; the caller's own deadline arrives as a cancellation.
            self._connections.note_answer("no answer in time", began=began)
            raise TimedOut(f"{what}: no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            words = words_of(error)
            if (
                is_answered
            ):  # perhaps a proxy cut this one stream; the next request shows whether the server answers
                raise ConnectionLost(f"{what}: {words}") from error
            is_hang_up = not isinstance(error, aiohttp.ClientConnectorError)
            self._connections.note_answer(words, began=began, is_hang_up=is_hang_up)
            raise Unavailable(f"{what}: {words}") from error


async def _piece_by_piece(
    response: aiohttp.ClientResponse, deadline: asyncio.Timeout, seconds: float, longest_seconds: float
) -> bytes:
    """Read a response body with a deadline of `seconds` for each part, and `longest_seconds` for the whole body.

    `deadline`: timeout of the caller, which is moved with each part. A large list over a slow network still
    arrives, and a server that hangs is still noticed.
    """
    loop = asyncio.get_running_loop()
    pieces, end = [], loop.time() + longest_seconds
    async for piece in response.content.iter_any():
        pieces.append(piece)
        deadline.reschedule(min(loop.time() + seconds, end))
    return b"".join(pieces)


def decode(body: bytes, type_: type[T], what: str) -> T:
    """Decode the body of an answer as `type_`. Raises Unavailable for anything else, such as a proxy's page.

    `what`: path or resource, for the message.
    """
    try:
        return decode_object(body, msgspec.json.Decoder(type_))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"{what}: the answer is not of type {type_.__name__}: {error}") from error


def preconditions(uid: str, resource_version: str) -> dict[str, str]:
    """Return UID and version as JSON fields; empty ones are left out. Source: meta/v1 Preconditions."""
    return {key: text for key, text in (("uid", uid), ("resourceVersion", resource_version)) if text}


def words_of(error: Exception) -> str:
    """Return a message of one line for a connection error."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"the certificate of {error.host}:{error.port} is not trusted: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or str(error.os_error)
            return f"cannot connect to {error.host}:{error.port}: {reason}"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
    return str(error) or type(error).__name__
