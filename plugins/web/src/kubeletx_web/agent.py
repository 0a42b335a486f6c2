"""`Agent`: a client of one agent's admin socket that can only read.

The admin socket accepts commands, too. So that no fault of the page becomes a command, this client makes GET requests
only, and only for the paths in `READS`: exec, attach and port-forward begin with GET as well and are not among them. The
one exception is a POST to `DECIDES`, which asks for a decision and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from kubeletx.api import Internal, NotFound, PermissionDenied, TimedOut, Unavailable

from .values import Credentials, Decision

T = TypeVar("T")

_NAME: Final = r"(?!\.{1,2}(?:/|$))[^/?#]+"
READS: Final = re.compile(
    "/version|/healthz"
    f"|/v1/(node|node/cluster|pods|runtimes|events|volumes|usage|usage/history|plugins|images|panels|sessions|fornaxcore|edge|access)"
    f"|/v1/panels/{_NAME}|/v1/runtimes/{_NAME}|/v1/pods/{_NAME}/{_NAME}(/history|/log|/vm/screenshot)?"
)
"""All paths that this client asks for."""
DECIDES: Final = "/v1/access"
"""Path of the POST request that asks who has access."""
TIMEOUT_SECONDS: Final = 10.0
_MAX_LINE: Final = 16 * 1024 * 1024
"""Longest line of a watch: a pod may have megabytes of annotations and conditions."""


class Line(msgspec.Struct, frozen=True):
    """One line of a watch: its type, such as ADDED, and the object as undecoded JSON."""

    type: str
    object: msgspec.Raw


class Agent:
    """Read-only client of the admin socket. Every method raises KubeletxError; an agent that is not there, Unavailable."""

    def __init__(self, socket_path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """`timeout_seconds`: of answers that are not endless."""
        self.socket_path = socket_path
        self._timeout = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, type_: type[T], query: Mapping[str, str] | None = None) -> T:
        """Return the answer to a GET request, decoded as `type_`."""
        async with self._request(path, query or {}, self._timeout) as response:
            body = await response.read()
        try:
            return msgspec.json.decode(body, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Internal(f"the agent gave an invalid answer to {path}: {error}") from error

    async def decide(self, credentials: Credentials) -> Decision:
        """Ask whether a user of the kubelet's API may see the page."""
        body = msgspec.json.encode(credentials)
        async with self._request(DECIDES, {}, self._timeout, body) as response:
            return msgspec.json.decode(await response.read(), type=Decision)

    async def read(self, path: str) -> bytes:
        """Return the answer to a GET request, such as a picture."""
        async with self._request(path, {}, self._timeout) as response:
            return await response.read()

    async def watch(self, path: str, begun: Callable[[], Awaitable[None]]) -> AsyncIterator[Line]:
        """Yield the lines of a watch until the agent ends it. `begun`: called when the watch has begun."""
        decoder = msgspec.json.Decoder(Line)
        async with self._request(path, {"watch": "1"}, None) as response:
            await begun()
            buffer = bytearray()
            async for piece in response.content.iter_any():
                buffer += piece
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    yield decoder.decode(line)
                if len(buffer) > _MAX_LINE:
                    raise Internal(f"the agent sent a line of more than {_MAX_LINE} bytes for {path}")

    async def chunks(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an endless answer, such as a log that is followed, as they arrive."""
        async with self._request(path, query, None) as response:
            async for piece in response.content.iter_any():
                yield piece

    @asynccontextmanager
    async def _request(
        self, path: str, query: Mapping[str, str], timeout: float | None, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if READS.fullmatch(path) is None or (body is not None and path != DECIDES):
            raise PermissionDenied(f"the page does not ask the agent for {path}")
        if self._session is None:
            connector = aiohttp.UnixConnector(str(self.socket_path), limit=64)
            self._session = aiohttp.ClientSession(connector=connector)
        limits = aiohttp.ClientTimeout(total=timeout, connect=self._timeout)
        try:
            method = "GET" if body is None else "POST"
            async with self._session.request(
                method, f"http://kubeletx{path}", params=query, data=body, timeout=limits
            ) as response:
                if response.status >= 400:
                    raise _error(response.status, await response.read(), path)
                yield response
        except TimeoutError as error:
            raise TimedOut(f"the agent did not answer {path} within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            raise Unavailable(f"no agent answers on {self.socket_path}: {why}") from error


def pod_path(namespace: str, name: str, verb: str = "") -> str:
    """Return the URL path of a pod, or of `verb` below it, such as ``history``."""
    path = f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return f"{path}/{verb}" if verb else path


class _Failure(msgspec.Struct):
    message: str = ""


def _error(status: int, body: bytes, path: str) -> NotFound | Unavailable:
    try:
        message = msgspec.json.decode(body, type=_Failure).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = body[:200].decode(errors="replace")
    text = message or f"status {status} for {path}"
    return NotFound(text) if status == 404 else Unavailable(text)
