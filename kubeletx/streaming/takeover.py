"""Takes a connection over from aiohttp: for SPDY/3.1, which its parser cannot read, and for raw pass-through.

A handler calls `take_over`, serves the client through the returned streams, and returns the `TakenOver` response, which
writes nothing::

    async def handle(request):
        pipe = take_over(request)
        pipe.writer.write(accept_upgrade(protocol))
        await serve_remote_command(pipe.reader, pipe.writer, ...)
        return TakenOver()

Clients of an upgrade send nothing before they have read the answer, so no byte is lost between the two parsers. At its
end the connection is returned to aiohttp, which then drops it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from kubeletx.api import Internal, Unavailable

from .proxy import Copied, Relay

BUFFER_BYTES = 1 << 16
HOP_HEADERS = frozenset({"content-length", "transfer-encoding", "host", "expect", "authorization", "cookie"})
"""Headers that are not forwarded: those of this connection only, and the client's credentials."""


class Pipe(NamedTuple):
    """Reader and writer of a connection that was taken over from aiohttp."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TakenOver(web.StreamResponse):
    """Response that a handler returns after `take_over`: it writes nothing, and the connection is not used again."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: the handler has sent everything."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the handler has ended the connection."""


class _Protocol(asyncio.StreamReaderProtocol):
    """Protocol of a taken-over connection. It also reports the connection's loss to aiohttp's protocol."""

    def __init__(self, reader: asyncio.StreamReader, replaced: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._replaced = replaced
        self._reader = reader

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._replaced.connection_lost(exc)


def take_over(request: web.BaseRequest) -> Pipe:
    """Take the client's connection over from aiohttp. Raises Unavailable if the client has disconnected."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=BUFFER_BYTES, loop=loop)
    protocol = _Protocol(reader, request.protocol)
    transport = _give(_transport_of(request), protocol)
    return Pipe(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def pass_through(
    request: web.BaseRequest,
    url: str,
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = 10.0,
    idle_seconds: float | None = None,
) -> Copied:
    """Forward an upgrade request to a streaming URL, then copy bytes both ways, whatever the URL's server answers.

    The request keeps its method and headers, including the client's Host but not its credentials; path and
    query are the URL's. `seconds`: deadline of connecting. `idle_seconds`: see `Relay`. If the URL's server
    cannot be reached, raises Unavailable, and the handler can still answer the client.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Internal(f"not a streaming URL: {url!r}")
    secure = parts.scheme == "https"
    context = (tls or ssl.create_default_context()) if secure else None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = _head(request.method, target, request.headers, default_host=parts.netloc)
    relay = Relay(idle_seconds=idle_seconds, on_left_lost=request.protocol.connection_lost)
    try:
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: relay.right, parts.hostname, parts.port or (443 if secure else 80), ssl=context
            )
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"cannot connect to {parts.netloc}: {error or 'timed out'}") from error
    try:
        _give(_transport_of(request), relay.left)
    except Unavailable:
        transport.close()
        raise
    transport.write(head)
    return await relay.run()


def _transport_of(request: web.BaseRequest) -> asyncio.Transport:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise Unavailable("the client has left")
    assert isinstance(transport, asyncio.Transport)
    return transport


def _give(transport: asyncio.Transport, protocol: asyncio.Protocol) -> asyncio.Transport:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if not transport.is_reading():
        transport.resume_reading()
    return transport


def _head(method: str, target: str, headers: Mapping[str, Any], *, default_host: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {headers.get('Host', default_host)}"]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in HOP_HEADERS]
    if method == "POST":
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="surrogateescape")  # as aiohttp decoded it
