"""`AgentServer`: serves calls of the driver on Unix sockets. Each connection has one call, and its own limits.

    connect ─► user is root? ─► message within 5 s? ─► answer ─► closed
                                                        └ the client disconnects: the waiting ends, the work continues

Slow clients, malformed messages and too many connections do not affect other clients: reading has a deadline and a size
limit, each connection has a task of its own, and connections above the limit are refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import structlog

from kubeletx.api import KubeletxError, first_of

from ..driver.program import MAX_REQUEST
from .sockets import BACKLOG, PrivateSocket, open_socket, peer_of
from .wire import FAILURE, DriverRequest, framed, parse_request, read_message, reply

log = structlog.get_logger(__name__)

REQUEST_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 512
_CHUNK: Final = 65536

Answer = Callable[[DriverRequest, str], Coroutine[Any, Any, bytes]]
"""Function from a request, and the name of the socket that it came from, to the text of the reply."""


class AgentServer:
    """Serves any number of sockets with the function `answer`."""

    def __init__(
        self,
        answer: Answer,
        *,
        request_seconds: float = REQUEST_SECONDS,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._answer = answer
        self._request_seconds = request_seconds
        self._max_connections = max_connections
        self._sockets: list[tuple[PrivateSocket, asyncio.Server]] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, directory: Path, name: str) -> None:
        """Serve a socket in `directory`, which is called `name` in calls of `answer`. Raises Conflict and OSError."""
        one = open_socket(directory)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer, name), name="driver-connection")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        server = await asyncio.start_unix_server(connected, sock=one.listening, backlog=BACKLOG)
        self._sockets.append((one, server))

    async def stop_listening(self) -> None:
        """Accept no more connections, and remove the sockets. Calls that run continue."""
        for one, server in self._sockets:
            server.close()
            one.close()
        self._sockets.clear()

    async def close(self) -> None:
        """End all connections; their calls are not answered."""
        await self.stop_listening()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        try:
            text = self._refusal(writer) or await self._answered(reader, name)
            if text:
                writer.write(framed(text))
                async with asyncio.timeout(self._request_seconds):
                    await writer.drain()
                    await _let_read(reader, writer)
        except (OSError, TimeoutError) as error:
            log.debug("Lost a connection of the driver", err=str(error))
        except Exception:  # root of the connection's task
            log.exception("Failed to serve a connection of the driver")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _refusal(self, writer: asyncio.StreamWriter) -> bytes:
        """Return the reply to a client that is not served at all; empty for others."""
        connection: socket.socket = writer.get_extra_info("socket")
        pid, uid = peer_of(connection)
        if uid not in (0, os.geteuid()):
            log.warning("Refused a connection of another user", pid=pid, uid=uid)
            return reply(FAILURE, "only root may call the storage agent")
        if len(self._connections) > self._max_connections:
            log.warning("Refused a connection", connections=len(self._connections))
            return reply(
                FAILURE, f"the storage agent serves {self._max_connections} calls already; repeat the call"
            )
        return b""

    async def _answered(self, reader: asyncio.StreamReader, name: str) -> bytes:
        """Read the request and return the reply; empty if the client is gone."""
        try:
            async with asyncio.timeout(self._request_seconds):
                message = await read_message(reader)
            request = parse_request(message)
        except EOFError:
            return b""
        except TimeoutError:
            return reply(FAILURE, f"no complete message came within {self._request_seconds:g} s")
        except KubeletxError as error:
            log.warning("Refused a message", socket=name, err=str(error))
            return reply(FAILURE, str(error))
        return await self._unless_gone(reader, request, name)

    async def _unless_gone(self, reader: asyncio.StreamReader, request: DriverRequest, name: str) -> bytes:
        """Answer the request; if the client disconnects or sends more, stop waiting for the answer."""
        work, _ = await first_of("driver-call", self._answer(request, name), reader.read(1))
        if work is not None:
            answer: bytes = work.result()
            return answer
        log.info("The driver disconnected before the answer", call=request.call)
        return b""


async def _let_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the client has closed its end; if this end is closed before all was read, the reply is lost."""
    writer.write_eof()
    left = MAX_REQUEST
    while left > 0 and (data := await reader.read(_CHUNK)):
        left -= len(data)
