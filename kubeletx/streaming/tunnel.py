"""SPDY/3.1 inside a WebSocket: kubectl's protocol for port-forward, ``SPDY/3.1+portforward.k8s.io``.

The binary messages of the WebSocket contain the bytes of the SPDY connection; message boundaries have no meaning.
`Tunnel` implements `ByteReader` and `ByteWriter`, which `SpdyConnection` uses. Source: KEP-4006; apiserver,
pkg/util/proxy/streamtunnel.go; client-go, tools/portforward/tunneling_connection.go.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web

from .spdy_server import PORT_FORWARD_PROTOCOLS
from .websocket import AnyWebSocket, make_response

TUNNEL_PREFIX: Final = "SPDY/3.1+"
TUNNEL_PROTOCOLS: Final = tuple(TUNNEL_PREFIX + protocol for protocol in PORT_FORWARD_PROTOCOLS)
"""WebSocket subprotocols of the tunnel: ``SPDY/3.1+portforward.k8s.io``."""
MAX_WAITING_BYTES: Final = 1 << 17
"""`Tunnel.drain` waits while more than this number of written bytes are unsent."""


def tunnel_response() -> web.WebSocketResponse:
    """Make a WebSocket response that offers only the tunnel subprotocols. Await its `prepare`, then make a `Tunnel`."""
    return make_response(TUNNEL_PROTOCOLS)


class Tunnel:
    """Byte stream inside a WebSocket, as reader and writer of a `SpdyConnection`, for a server or a client.

    Use it as an async context manager, which runs the task that sends. At its end the WebSocket is closed.
    """

    def __init__(self, ws: AnyWebSocket) -> None:
        self._ws = ws
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_closing = False
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send(), name="tunnel-send")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        assert self._sender is not None
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)
        await self._ws.close()

    async def read(self, n: int = -1) -> bytes:
        """Return the data of the next message; empty once the other side has disconnected. `n` is ignored."""
        while True:
            message = await self._ws.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:  # text messages are not part of the protocol
                return b""
            if message.data:
                return bytes(message.data)

    def write(self, data: bytes) -> None:
        """Queue data to send, without waiting. Data written after `close` are dropped."""
        if not self._is_closing:
            self._waiting += data
            if len(self._waiting) > MAX_WAITING_BYTES:
                self._room.clear()
            self._news.set()

    async def drain(self) -> None:
        """Wait while more than `MAX_WAITING_BYTES` are unsent."""
        await self._room.wait()

    def is_closing(self) -> bool:
        return self._is_closing or self._ws.closed

    def close(self) -> None:
        """Refuse further data. Queued data are still sent, then the WebSocket is closed. Does not wait."""
        self._is_closing = True
        self._news.set()

    async def wait_closed(self) -> None:
        """Wait until all queued data and the close message are sent, or the connection is lost."""
        if self._sender is not None:
            await asyncio.wait([self._sender])

    async def _send(self) -> None:
        try:
            with contextlib.suppress(
                ConnectionError, RuntimeError, aiohttp.ClientError
            ):  # the client has left
                while self._waiting or not self._is_closing:
                    await self._news.wait()
                    self._news.clear()
                    data, self._waiting = bytes(self._waiting), bytearray()
                    self._room.set()
                    if data:
                        await self._ws.send_bytes(data)
                await self._ws.close()
        finally:
            self._is_closing = True
            self._room.set()
