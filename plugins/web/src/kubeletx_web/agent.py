"""`Agent`: a client of one agent's admin socket that can only read.

The admin socket accepts commands, too. So that no fault of the page becomes a command, this client makes GET requests
only, and only for the paths in `READS`: exec, attach and port-forward begin with GET as well and are not among them. The
one exception is a POST to `DECIDES`, which asks for a decision and changes nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import h11
import msgspec

from kubeletx.api import Internal, NotFound, PermissionDenied, TimedOut, Unavailable

from .http import asking

T = TypeVar("T")

_NAME: Final = r"(?!\.{1,2}(?:/|$))[^/?#]+"
READS: Final = re.compile(
    "/version"
    f"|/v1/(node|node/cluster|pods|runtimes|events|volumes|usage/history|plugins|images|panels|sessions|fornaxcore|edge|access)"
    f"|/v1/panels/{_NAME}|/v1/pods/{_NAME}/{_NAME}(/history|/log|/vm/screenshot)?"
)
"""All paths that this client asks for."""
DECIDES: Final = "/v1/access"
"""Path of the POST request that asks who has access."""
TIMEOUT_SECONDS: Final = 10.0
MAX_BYTES: Final = 64 * 1024 * 1024
"""Longest answer, and longest line of a watch: a pod may have megabytes of annotations and conditions."""


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

    async def get(self, path: str, type_: type[T], query: Mapping[str, str] | None = None) -> T:
        """Return the answer to a GET request, decoded as `type_`."""
        return decoded(await self.read(path, query), type_, path)

    async def decide(self, credentials: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask whether a user of the kubelet's API may see the page."""
        body = msgspec.json.encode(credentials)
        return decoded(await self.read(DECIDES, body=body), dict[str, Any], DECIDES)

    async def read(self, path: str, query: Mapping[str, str] | None = None, *, body: bytes = b"") -> bytes:
        """Return the answer to a GET request, such as a picture; with a body, to a POST request."""
        async with self._asking(path, query, body) as pieces, asyncio.timeout(self._timeout):
            return await _whole(pieces, path)

    async def watch(self, path: str) -> AsyncGenerator[Line | None, None]:
        """Yield None when the watch has begun, then its lines until the agent ends it."""
        buffer = bytearray()
        async with self._asking(path, {"watch": "1"}) as pieces:
            yield None
            async for piece in pieces:
                *lines, rest = (buffer + piece).split(b"\n")
                buffer = rest
                for line in lines:
                    yield decoded(bytes(line), Line, path)
                if len(buffer) > MAX_BYTES:
                    raise Internal(f"the agent sent a line of more than {MAX_BYTES} bytes for {path}")

    async def chunks(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an endless answer, such as a log that is followed, as they arrive."""
        async with self._asking(path, query) as pieces:
            async for piece in pieces:
                yield piece

    @asynccontextmanager
    async def _asking(
        self, path: str, query: Mapping[str, str] | None, body: bytes = b""
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        if READS.fullmatch(path) is None or (body and path != DECIDES):
            raise PermissionDenied(f"the page does not ask the agent for {path}")
        method, target = "POST" if body else "GET", f"{path}?{urlencode(query or {})}".removesuffix("?")
        try:
            async with asking(self.socket_path, method, target, body, self._timeout) as (status, pieces):
                if status >= 400:
                    async with asyncio.timeout(self._timeout):
                        raise _error(status, await _whole(pieces, path), path)
                yield pieces
        except TimeoutError as error:
            raise TimedOut(f"the agent did not answer {path} within {self._timeout:g} s") from error
        except (h11.RemoteProtocolError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            raise Unavailable(f"no agent answers on {self.socket_path}: {why}") from error


async def _whole(pieces: AsyncIterator[bytes], path: str) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_BYTES:
            raise Internal(f"the agent sent more than {MAX_BYTES} bytes for {path}")
    return bytes(body)


def pod_path(namespace: str, name: str, verb: str = "") -> str:
    """Return the URL path of a pod, or of `verb` below it, such as ``history``."""
    path = f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return f"{path}/{verb}" if verb else path


def decoded(body: bytes | msgspec.Raw, type_: type[T], path: str) -> T:
    """Return the value in an answer. Raises Internal."""
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Internal(f"the agent gave an invalid answer to {path}: {error}") from error


def _error(status: int, body: bytes, path: str) -> NotFound | Unavailable:
    try:
        message = decoded(body, dict[str, Any], "").get("message")
    except Internal:
        message = body[:200].decode(errors="replace")
    text = str(message or f"status {status} for {path}")
    return NotFound(text) if status == 404 else Unavailable(text)
