"""`KubeClient`: requests to one API server.

Connections are kept and shared; a request that fails because a kept connection had been closed meanwhile is sent again
by aiohttp if it is safe to repeat. Nothing else is repeated here: callers know what a repetition means. Each request
has a deadline; what it left undone is unknown then (TimedOut).
"""

from __future__ import annotations

import asyncio
import enum
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from kubeletx.api import Clock, InvalidConfig, PermissionDenied, TimedOut, Unavailable

from .access import ClusterAccess
from .buffers import shrink
from .credentials import Credentials
from .errors import error_of, parse_status

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 20, 5, 3
"""A peer that went away without a word is noticed after 35 seconds of silence."""

Throttle = Callable[[], Awaitable[None]]


class Patch(enum.Enum):
    """How a patch is to be read. Source: apimachinery, pkg/types/patch.go."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class KubeClient:
    """Made in the event loop that it is used in; `close` at the end."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        clock: Clock,
        user_agent: str = "kubeletx",
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: awaited before each request but watches; None: no limit."""
        self.access = access
        self._clock = clock
        self._credentials = Credentials(access, clock)
        self._user_agent = user_agent
        self._throttle = throttle
        self._session: aiohttp.ClientSession | None = None
        self._back = asyncio.Event()
        self.problem = ""
        """Why the server does not answer; empty while it does. Who reports failures keeps quiet meanwhile."""

    async def close(self) -> None:
        """Close all connections; streams that are open end."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def pause(self, seconds: float) -> None:
        """Wait before the next try; no longer once a server that was lost has answered somebody else."""
        waits = [asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._back.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def get(self, path: str, type_: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """One object or list. Raises NotFound, PermissionDenied, Unavailable, TimedOut, Internal."""
        return decode(await self.request("GET", path, params=params), type_, path)

    async def create(self, path: str, value: Any, type_: type[T]) -> T:
        """The object as the server made it. Raises AlreadyExists besides."""
        return decode(await self.request("POST", path, body=msgspec.json.encode(value)), type_, path)

    async def replace(self, path: str, value: Any, type_: type[T]) -> T:
        """The object as it is now. Raises Conflict if it has another version than `value` says."""
        return decode(await self.request("PUT", path, body=msgspec.json.encode(value)), type_, path)

    async def patch(self, path: str, value: Any, type_: type[T], *, kind: Patch = Patch.STRATEGIC) -> T:
        """The object as it is now. Raises Conflict if `metadata.uid` of the patch is another's."""
        body = msgspec.json.encode(value)
        return decode(await self.request("PATCH", path, body=body, content_type=kind.value), type_, path)

    async def delete(self, path: str, *, uid: str = "", grace_seconds: int | None = None) -> None:
        """Ask for the deletion. `uid`: only of that very object, else Conflict. Raises NotFound if it is gone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
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
    ) -> bytes:
        """The body of a success. `path` as `Resource.path` makes it."""
        if self._throttle is not None:
            await self._throttle()
        headers = {} if body is None else {"Content-Type": content_type}
        try:
            async with asyncio.timeout(seconds):
                async with self._send(method, path, params, body, headers) as response:
                    return await response.read()
        except TimeoutError as error:
            self._heard(f"no answer within {seconds:g} s")
            raise TimedOut(f"{method} {path}: no answer within {seconds:g} s") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body as it comes, without a deadline but for the first answer."""
        async with self._send("GET", path, params, None, {}, first_seconds=REQUEST_SECONDS) as response:
            if response.connection is not None:  # None: the whole answer is here already
                shrink(response.connection.transport)
            yield response.content

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
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

        what = f"{method} {path}"
        try:
            await self._credentials.refresh()
            session = self._session_now()
            async with asyncio.timeout(first_seconds):
                response = await session.request(
                    method,
                    self.access.server + path,
                    params=params,
                    data=body,
                    headers={**headers, **self._credentials.headers},
                    ssl=self._credentials.tls or True,
                    server_hostname=self.access.tls_server_name or None,
                    proxy=self.access.proxy_url or None,
                    allow_redirects=False,
                )
            self._heard("")
            async with response:
                if not 200 <= response.status < 300:
                    status = parse_status(await response.read())
                    if response.status == 401:
                        self._credentials.forget()
                    raise error_of(
                        response.status, status, what, retry_after=response.headers.get("Retry-After", "")
                    )
                yield response
        except InvalidConfig as error:  # a file that is being replaced; the next request looks again
            self._credentials.forget()
            raise PermissionDenied(f"{what}: {error}") from error
        except (
            TimeoutError
        ) as error:  # of connecting, or of the first answer; the caller's comes as a cancellation
            self._heard("no answer in time")
            raise TimedOut(f"{what}: no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            words = words_of(error)
            self._heard(words)
            raise Unavailable(f"{what}: {words}") from error

    def _heard(self, problem: str) -> None:
        """One line when the server is lost, one when it is there again."""
        if problem and not self.problem:
            log.warning("Lost the API server", server=self.access.server, err=problem)
        elif self.problem and not problem:
            log.info("Reached the API server again", server=self.access.server)
            self._back.set()
            self._back = asyncio.Event()
        self.problem = problem

    def _session_now(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=60.0, socket_factory=_socket, enable_cleanup_closed=False
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers={"User-Agent": self._user_agent, "Accept": "application/json"},
                auto_decompress=True,
                read_bufsize=1 << 18,
                skip_auto_headers=("Content-Type",),
            )
        return self._session


def decode(body: bytes, type_: type[T], what: str) -> T:
    """Raises Unavailable for an answer that is not the object (a proxy's page, a cut body)."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{what}: the answer is no {type_.__name__}: {error}") from error


def words_of(error: Exception) -> str:
    """A failed connection in one line."""
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


def _socket(info: Any) -> socket.socket:
    """With keep-alive: a watch may be silent for minutes, and so may a peer that is gone."""
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    made.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_IDLE_SECONDS + _PROBE_SECONDS * _PROBES)
    )
    return made
