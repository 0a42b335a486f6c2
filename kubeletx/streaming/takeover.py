"""Takes a client's connection over from aiohttp, for protocols that aiohttp cannot read: SPDY/3.1, and copied bytes.

An aiohttp handler calls `take_over`, serves the client through the returned reader and writer, and returns the response
`TakenOver`, which sends nothing::

    async def handle(request):
        pipe = take_over(request)
        pipe.writer.write(accept_upgrade(protocol))
        await serve_remote_command(pipe.reader, pipe.writer, ...)
        return TakenOver()

No byte is lost when the parser changes, since clients of an HTTP upgrade send nothing before they have read the answer.
When the connection is lost, aiohttp's own protocol object is notified, so that aiohttp forgets the connection.
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
"""Request headers that `pass_through` does not forward: headers of one connection, and the client's credentials.

``Host`` is written separately.
"""


class Pipe(NamedTuple):
    """Reader and writer of a client's connection that was taken over from aiohttp."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TakenOver(web.StreamResponse):
    """Response that an aiohttp handler returns after `take_over` or `pass_through`.

    It sends nothing, and aiohttp does not use the connection for further requests.
    """

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing, since the handler has sent the HTTP answer itself."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing, since the handler has sent all data itself."""


class _Protocol(asyncio.StreamReaderProtocol):
    """asyncio protocol of a connection that was taken over from aiohttp.

    It passes `connection_lost` to the protocol object of aiohttp, `replaced`.
    """

    def __init__(self, reader: asyncio.StreamReader, replaced: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._replaced = replaced
        self._reader = reader

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._replaced.connection_lost(exc)


def take_over(request: web.BaseRequest) -> Pipe:
    """Take the connection of the request's client over from aiohttp, and return its reader and writer.

    Raises Unavailable if the client has disconnected.
    """
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
    """Forward a client's upgrade request to a streaming URL, and copy bytes both ways until both sides have closed.

    The client gets the answer of the URL's server unchanged, also if it is an error. The forwarded request has
    the client's method and headers (with Host, without credentials), and the URL's path and query. `tls`: for
    https URLs; None: the certificate is checked against the system's CAs. `seconds`: time limit for connecting.
    `idle_seconds`: see `Relay`. Returns the numbers of copied bytes. Raises Unavailable if the URL's server
    cannot be reached; the handler can then still answer the client.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Internal(f"streaming URL {url!r} is not http:// or https:// with a host")
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
        raise Unavailable(
            f"{request.method} {request.rel_url.raw_path}: the client closed the connection before the answer"
        )
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
