"""HTTP/1.1 by h11: a server for browsers with limits, since any process can connect to it, and requests to a unix socket."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import h11
import msgspec

from kubeletx.kube.tls_buffers import begin_small
from kubeletx.linux.listener import ConnectionLimits, Listener

MAX_CONNECTIONS: Final = 300
"""Open connections, half of them from one address; further ones get status 503. A browser has up to six."""
MAX_HEAD: Final = 64 * 1024
"""Bytes of a request without its body; a token of many groups is long."""
IDLE_SECONDS: Final = 15.0
"""A connection that sends no whole request for this time is closed."""
WRITE_SECONDS: Final = 30.0
"""A browser that reads nothing for this time is disconnected."""
BUSY_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 15
_REFUSED: Final = 32
"""Connections that get status 503 at the same time; further ones are closed at once."""
_PIECE: Final = 64 * 1024


class Request(NamedTuple):
    """A request without its body. `path`: as it was sent. `headers`: names in lower case.

    `subject`: of the client's certificate.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    subject: tuple[Any, ...] = ()


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: `body`, which may be compressed if it is a text, or `events`: pieces of an endless one."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/html"
    headers: Mapping[str, str] = {}
    events: AsyncGenerator[bytes, None] | None = None


Handler = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def serving(
    handler: Handler,
    flag: str,
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    most: int = MAX_CONNECTIONS,
    idle_seconds: float = IDLE_SECONDS,
    write_seconds: float = WRITE_SECONDS,
) -> AsyncIterator[int]:
    """Serve within this context; yields the port. Raises InvalidConfig, which names `flag`, if it cannot listen there.

    `handler`: must not raise. `port` 0: any free one. `most`, `idle_seconds`, `write_seconds`: see `MAX_CONNECTIONS`,
    `IDLE_SECONDS`, `WRITE_SECONDS`.
    """
    open_: dict[asyncio.Task[None], str] = {}
    listener = Listener(
        flag=flag,
        address=address,
        port=port,
        limits=ConnectionLimits(port=most + _REFUSED, peer=(most + _REFUSED) // 2),
        tls=tls,
        handshake_seconds=idle_seconds,
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        connection = _Connection(handler, reader, writer, idle_seconds, write_seconds, http)
        is_above = len(open_) > most or [*open_.values()].count(peer) > most // 2
        try:
            _keep_alive(writer.get_extra_info("socket"))
            await (connection.refuse() if is_above else connection.serve())
            writer.close()
            async with asyncio.timeout(write_seconds):
                await writer.wait_closed()
        except OSError as error:  # the browser is gone, or too slow
            error.__traceback__ = None  # its frames know the reader, which keeps the error: a cycle
        finally:
            writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, *_ = writer.get_extra_info("peername") or ("",)
        task = asyncio.create_task(serve(reader, writer, peer), name="connection of a browser")
        open_[task] = peer
        task.add_done_callback(open_.pop)

    begin_small()
    await listener.start(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), begin))
    try:
        yield listener.port
    finally:
        await listener.stop()
        tasks = tuple(open_)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _keep_alive(connected: socket.socket) -> None:
    """Let Linux end the connection of a browser that has gone without a word, also while nothing is sent."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connected.setsockopt(socket.IPPROTO_TCP, option, KEEPALIVE_SECONDS)


class _Connection(msgspec.Struct):
    """One connection of a browser."""

    handler: Handler
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_seconds: float
    write_seconds: float
    http: h11.Connection

    async def serve(self) -> None:
        """Answer requests until the browser or an error ends the connection."""
        try:
            while await self._answer():
                self.http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._end(error.error_status_hint, b"The request is not valid HTTP, or too large.\n")

    async def _answer(self) -> bool:
        """Answer one request; returns True if there may be another."""
        async with asyncio.timeout(self.idle_seconds):
            event = await next_event(self.http, self.reader)
        if not isinstance(event, h11.Request):
            return False
        # A request with a body ends the connection: nothing here reads one.
        is_whole = isinstance(self.http.next_event(), h11.EndOfMessage)
        request = self._request(event)
        await self._send(request, await self.handler(request), keep=is_whole)
        if not is_whole:
            await self._linger()
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE

    async def refuse(self) -> None:
        """Answer that there are too many connections."""
        await self._end(503, b"The page has too many connections. Try again later.\n")

    async def _end(self, status: int, text: bytes) -> None:
        headers = [
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(text))),
            ("Connection", "close"),
        ]
        await self._write(_head(status, headers), h11.Data(text), h11.EndOfMessage())
        await self._linger()

    async def _linger(self) -> None:
        """Drop what the browser still sends: an early close can destroy the answer."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        async with asyncio.timeout(BUSY_SECONDS):
            while await self.reader.read(_PIECE):
                pass

    def _request(self, event: h11.Request) -> Request:
        path, _, query = event.target.decode("latin-1").partition("?")
        certificate = self.writer.get_extra_info("peercert") or {}
        return Request(
            method=event.method.decode("latin-1"),
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)[::-1]),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers},
            subject=certificate.get("subject", ()),
        )

    async def _send(self, request: Request, response: Response, *, keep: bool) -> None:
        body, headers = response.body, {**response.headers}
        headers["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        headers["Content-Type"] = response.media_type
        if response.media_type.startswith("text/"):
            headers["Content-Type"] += "; charset=utf-8"
            if "gzip" in request.headers.get("accept-encoding", "") and body:
                body = gzip.compress(body, compresslevel=3, mtime=0)
                headers["Content-Encoding"] = "gzip"
        if response.events is None:
            headers["Content-Length"] = str(len(body))
        if not keep:
            headers["Connection"] = "close"
        await self._write(_head(response.status, [*headers.items()]))
        if request.method != "HEAD":
            if response.events is not None:
                await self._stream(response.events)
            elif body:
                await self._write(h11.Data(body))
        await self._write(h11.EndOfMessage())

    async def _stream(self, events: AsyncGenerator[bytes, None]) -> None:
        """Send the pieces until they end, or the browser goes away or sends anything."""

        async def send() -> None:
            async with aclosing(events):
                async for event in events:
                    await self._write(h11.Data(event))

        sending = asyncio.create_task(send(), name="events for a browser")
        going = asyncio.create_task(self.reader.read(1), name="end of a browser")
        try:
            await asyncio.wait((sending, going), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionResetError
            await sending
        finally:
            sending.cancel()
            going.cancel()
            await asyncio.gather(sending, going, return_exceptions=True)

    async def _write(self, *events: h11.Event) -> None:
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        async with asyncio.timeout(self.write_seconds):
            await self.writer.drain()


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)


async def next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    """Return the next event of the other side. Raises h11.RemoteProtocolError for anything that is not HTTP."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_PIECE))
    return event


class Answer(NamedTuple):
    """An answer of a unix socket: its status, and the pieces of its body as they arrive."""

    status: int
    pieces: AsyncGenerator[bytes, None]


@asynccontextmanager
async def asking(
    socket_path: Path, method: str, target: str, body: bytes, head_seconds: float
) -> AsyncIterator[Answer]:
    """Make a request on a connection of its own. Raises TimeoutError without an answer in time, OSError or h11.RemoteProtocolError."""
    connection, writer = h11.Connection(h11.CLIENT), None
    headers = [("Host", "kubeletx"), ("Connection", "close"), ("Content-Length", str(len(body)))]
    try:
        async with asyncio.timeout(head_seconds):
            reader, writer = await asyncio.open_unix_connection(socket_path)
            for event in (
                h11.Request(method=method, target=target, headers=headers),
                h11.Data(body),
                h11.EndOfMessage(),
            ):
                writer.write(connection.send(event) or b"")
            head = await next_event(connection, reader)
        if not isinstance(head, h11.Response):
            raise ConnectionResetError("it ended the connection")

        async def pieces() -> AsyncGenerator[bytes, None]:
            while isinstance(event := await next_event(connection, reader), h11.Data):
                yield bytes(event.data)

        async with aclosing(pieces()) as body_pieces:
            yield Answer(head.status_code, body_pieces)
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
