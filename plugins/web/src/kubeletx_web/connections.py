"""`Connections`: limits of a server that any process of the machine, or of the network, can connect to.

Above the limit a connection gets status 503. A connection without a whole first request is closed after a time; aiohttp
has its own time limit for later ones.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MAX_CONNECTIONS: Final = 300
"""Open connections. A browser has up to six."""
FIRST_SECONDS: Final = 10.0
BUSY_SECONDS: Final = 1.0
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 10\r\nConnection: close\r\n\r\n"
    b"The page has too many connections. Try again later.\n"
)
BACKLOG: Final = 32
MAX_LINE: Final = 16 * 1024
"""Bytes of a request's line, and of each header, such as one with a token of many groups."""
MAX_HEADERS: Final = 50


@asynccontextmanager
async def serving(
    app: web.Application,
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    most: int = MAX_CONNECTIONS,
    first_seconds: float = FIRST_SECONDS,
) -> AsyncIterator[int]:
    """Serve the application within this context; yields the port. Raises OSError if it cannot listen there.

    `port` 0: any free one. `most` and `first_seconds`: see `Connections`.
    """
    connections = Connections(most=most, first_seconds=first_seconds)
    app.middlewares.insert(0, connections.middleware)
    runner = web.AppRunner(
        app,
        handle_signals=False,
        access_log=None,
        logger=_logger(),
        handler_cancellation=True,
        shutdown_timeout=0.5,
        keepalive_timeout=15,
        max_line_size=MAX_LINE,
        max_field_size=MAX_LINE,
        max_headers=MAX_HEADERS,
    )
    await runner.setup()
    try:
        assert runner.server is not None
        listener = await asyncio.get_running_loop().create_server(
            connections.accepting(runner.server),
            address,
            port,
            backlog=BACKLOG,  # so many are accepted before the first of them counts
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else first_seconds,
        )
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
    finally:
        await runner.cleanup()


def _logger() -> logging.Logger:
    """Return the server's logger, without requests that are no HTTP: any client can send them."""
    logger = logging.getLogger(__name__)
    logger.addFilter(
        lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
    )
    return logger


class Connections:
    """Makes the protocols of new connections. `middleware` belongs to the application that serves them."""

    def __init__(self, *, most: int = MAX_CONNECTIONS, first_seconds: float = FIRST_SECONDS) -> None:
        """`most`: number of open connections. `first_seconds`: until a connection has sent its first request."""
        self._most = most
        self._first_seconds = first_seconds
        self._silent: dict[object, asyncio.TimerHandle] = {}
        """Connections without a request yet."""
        self._refused: set[_Busy] = set()

    def accepting(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """Return the protocol factory of a listening socket that the server answers."""

        def accept() -> asyncio.BaseProtocol:
            if len(server.connections) >= self._most:
                return _Busy(self._refused, self._most)
            connection = server()
            loop = asyncio.get_running_loop()
            self._silent[connection] = loop.call_later(self._first_seconds, self._end, connection)
            return connection

        return accept

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note that the connection has sent a request."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await handler(request)

    def _end(self, connection: web.RequestHandler) -> None:
        self._silent.pop(connection, None)
        if connection.transport is not None:
            connection.transport.abort()


class _Busy(asyncio.Protocol):
    """Answers with status 503. It waits for the client's end, since an early close can destroy the answer."""

    def __init__(self, others: set[_Busy], most: int) -> None:
        self._others = others
        self._most = most
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._others) >= self._most:
            transport.abort()
            return
        self._others.add(self)
        transport.write(BUSY)
        if transport.can_write_eof():
            transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(BUSY_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        if self._timer is not None:
            self._timer.cancel()
