"""`Line`: a TCP proxy between a client and an API server, which a test can cut, slow down or silence.

It listens on 127.0.0.1 (by default) in its own thread and forwards bytes unchanged. So TLS and certificates are those of
the server behind it: the double, or a kube-apiserver. Clients connect to the proxy's `url` and not to the
server's URL.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

_DEADLINE_SECONDS: Final = 60.0
_READ_BYTES: Final = 1 << 16


class _Connection:
    """The connection of one client, and the connection to the server that belongs to it.

    `left`: number of bytes from the server that are still forwarded before the connection is cut; None: no
    limit. `is_silent`: nothing is forwarded any more.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.is_silent = False
        self.transports: list[asyncio.WriteTransport] = []

    def abort(self) -> None:
        """Reset the connections to the client and to the server."""
        for transport in self.transports:
            transport.abort()


class Line:
    """A TCP proxy in front of one API server, as a context manager. Methods may be called from any thread.

    `url`: the proxy's own URL, for clients.
    """

    def __init__(self, server_url: str, *, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        """`server_url`: the server behind the proxy, https://HOST:PORT. `listen`: address; port 0: a free port."""
        parts = urlsplit(server_url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._listen = listen
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line", daemon=True)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._piece_bytes, self._piece_seconds = 0, 0.0
        self._holds = False
        self._is_ending = False
        self.url = ""
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_SECONDS)
        self._loop.close()

    @property
    def connections(self) -> int:
        """Number of client connections that are open now."""
        return len(self._connections)

    def cut_after(self, count: int) -> None:
        """Cut each connection that is open now after `count` more bytes from the server; 0 cuts at once."""

        def order(connection: _Connection) -> None:
            connection.left = count
            if count == 0:
                connection.abort()

        self._each(order)

    def silence(self) -> None:
        """Stop forwarding on the connections that are open now, without closing them, as long as they exist.

        New connections work.
        """

        def order(connection: _Connection) -> None:
            connection.is_silent = True

        self._each(order)

    def hold(self) -> None:
        """Stop forwarding as `silence` does, also on connections that are opened before `release`."""
        self._holds = True
        self.silence()

    def release(self) -> None:
        """End `hold`: new connections work again. Connections that are silent remain silent."""
        self._holds = False

    def trickle(self, piece_bytes: int, piece_seconds: float) -> None:
        """Forward the server's bytes in pieces of `piece_bytes`, one every `piece_seconds`.

        0 and 0 removes this limit.
        """
        self._piece_bytes, self._piece_seconds = piece_bytes, piece_seconds

    # --- inside ---

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, *self._listen)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"https://{self._listen[0]}:{self.port}"

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._is_ending = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_ending:  # accepted before the server closed
            writer.transport.abort()
            return
        task = self._loop.create_task(self._carry(reader, writer), name="line")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection()
        connection.is_silent = self._holds
        connection.transports.append(writer.transport)
        self._connections.add(connection)
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
            connection.transports.append(back.transport)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(connection, reader, back), name="line-up")
                group.create_task(self._down(connection, there, writer), name="line-down")
        except* OSError:  # no server, or one side has disconnected
            pass
        finally:
            self._connections.discard(connection)
            connection.abort()

    async def _up(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            if not connection.is_silent:
                writer.write(data)
                await writer.drain()
        connection.abort()

    async def _down(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(self._piece_bytes or _READ_BYTES):
            if connection.is_silent:
                continue
            if connection.left is not None:
                data = data[: connection.left]
                connection.left -= len(data)
            writer.write(data)
            await writer.drain()
            if connection.left == 0:
                break
            if self._piece_seconds:
                await asyncio.sleep(self._piece_seconds)
        if not connection.is_silent:
            writer.close()  # sends what was written
            connection.transports[-1].abort()

    def _each(self, order: Callable[[_Connection], None]) -> None:
        async def go() -> None:
            for connection in list(self._connections):
                order(connection)

        self._call(go())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE_SECONDS)
