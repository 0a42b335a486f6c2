"""Exec, attach and port-forward over WebSocket: server (`serve_remote_command`) and client (`connect_session`).

The server supports all five subprotocols (`channels.WsProtocol`), for kubectl, Python clients and kubeletx's own
command line. The client uses v5, over any aiohttp session. The admin socket serves a forwarded connection with
`serve_remote_command` too: stdin is the data to the pod, and stdout the data from it. `serve_port_forward` serves the
older port-forward protocol of Kubernetes, with two channels for each port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp import web

from kubeletx.api import Channel, Internal, KubeletxError, NotFound, PermissionDenied, Session, Unavailable

from .channels import (
    CLOSE_CHANNEL,
    PROTOCOLS,
    WsProtocol,
    decode_message,
    decode_resize,
    encode_message,
    encode_resize,
)
from .status import encode_error, encode_exit, exit_code_of

log = structlog.get_logger(__name__)

CHUNK_BYTES = 1 << 15
MAX_MESSAGE_BYTES = 4 << 20
PING_SECONDS = 30.0
CLOSE_SECONDS = 60.0
"""Time limit for a client to read pending data and to answer the close message."""

AnyWebSocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


def websocket_response() -> web.WebSocketResponse:
    """Make a WebSocket response that offers all subprotocols of exec and attach.

    Await its `prepare`, then `serve_remote_command`.
    """
    return make_response(PROTOCOLS)


def make_response(protocols: Sequence[str]) -> web.WebSocketResponse:
    """Make a WebSocket response that offers `protocols`, with `MAX_MESSAGE_BYTES` and `CLOSE_SECONDS` as limits."""
    return web.WebSocketResponse(
        protocols=protocols, max_msg_size=MAX_MESSAGE_BYTES, timeout=CLOSE_SECONDS, compress=False
    )


@contextlib.asynccontextmanager
async def kept_awake(ws: AnyWebSocket, ping_seconds: float = PING_SECONDS) -> AsyncIterator[None]:
    """Context manager that sends a ping every `ping_seconds`, so that proxies do not close an idle connection.

    A missing pong is not an error: it can be read only after the data before it, and a command may read its stdin
    slowly.
    """
    pinging = asyncio.create_task(_ping(ws, ping_seconds), name="websocket-ping")
    try:
        yield
    finally:
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)


async def serve_remote_command(
    ws: web.WebSocketResponse,
    session: Session,
    protocol: str | None = None,
    *,
    ping_seconds: float = PING_SECONDS,
) -> None:
    """Copy data between a prepared WebSocket and a session, until the session ends or the client disconnects.

    Then the WebSocket and the session are closed. The result of the session, or its error, is sent to the client
    on the error channel. `protocol`: the subprotocol; None or empty: the one that `ws` has negotiated, or
    channel.k8s.io if there is none.
    """
    picked = WsProtocol(protocol or ws.ws_protocol or WsProtocol.V1.value)
    try:
        await _send_message(ws, picked, Channel.STDOUT, b"")
    except Unavailable as error:  # the client left while the session was being opened
        log.debug("Lost a client before its first message", err=str(error))
        await session.close()
        return
    receiving = asyncio.create_task(_receive(ws, session, picked), name="websocket-receive")
    sending = asyncio.create_task(_send(ws, session, picked), name="websocket-send")
    try:
        async with kept_awake(ws, ping_seconds):
            await asyncio.wait([receiving, sending], return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            await session.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.wait([sending])
        await ws.close()
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)
        await session.close()


async def send_error(ws: web.WebSocketResponse, error: KubeletxError, protocol: str | None = None) -> None:
    """Send `error` to the client on the error channel, and close `ws`. Use it for failures after the upgrade.

    `protocol`: as for `serve_remote_command`.
    """
    picked = WsProtocol(protocol or ws.ws_protocol or WsProtocol.V1.value)
    await _send_message(ws, picked, Channel.ERROR, _report(picked, error))
    await ws.close()


async def serve_port_forward(
    ws: web.WebSocketResponse,
    ports: Sequence[int],
    connect: Callable[[int], Awaitable[Session]],
    protocol: str | None = None,
) -> None:
    """Serve the older port-forward protocol of Kubernetes: for the i-th port, channel 2i has data and 2i+1 errors.

    `connect`: opens a session to a port. The server first sends each port number on both channels of the port, as
    two bytes in little-endian order. An error of one port is sent on its error channel; the other ports continue.
    Returns when all ports have ended, or the client disconnects; all sessions and `ws` are then closed.
    `protocol`: the subprotocol; None or empty: the one that `ws` has negotiated, or v4.channel.k8s.io if there is
    none.
    """
    picked = WsProtocol(protocol or ws.ws_protocol or WsProtocol.V4.value)
    sessions: dict[int, Session] = {}
    tasks: list[asyncio.Task[None]] = []
    try:
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await _send_message(ws, picked, channel, port.to_bytes(2, "little"))
            try:
                sessions[2 * index] = session = await connect(port)
            except KubeletxError as error:
                await _send_message(ws, picked, 2 * index + 1, str(error).encode())
                continue
            pump = _pump(ws, picked, session, 2 * index)
            tasks.append(asyncio.create_task(pump, name=f"port-forward-{port}"))
        feeding = asyncio.create_task(_feed(ws, picked, sessions), name="port-forward-input")
        tasks.append(feeding)
        async with kept_awake(ws):
            while len(tasks) > 1 and not feeding.done():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                tasks = [task for task in tasks if task not in done]
    except Unavailable as error:
        log.debug("Lost a client of forwarded ports", err=str(error))
    finally:
        for task in tasks:
            task.cancel()
        async with contextlib.AsyncExitStack() as closing:  # a failed close does not prevent the others
            closing.push_async_callback(ws.close)
            for session in sessions.values():
                closing.push_async_callback(session.close)
            await asyncio.gather(*tasks, return_exceptions=True)


async def connect_session(
    client: aiohttp.ClientSession,
    url: str,
    params: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> WebSocketSession:
    """Connect to an exec, attach or port-forward URL over WebSocket v5, and return the session.

    `params`: query parameters, such as command, stdin and tty. `headers`: more request headers. Raises NotFound,
    PermissionDenied, Unavailable or Internal if the server refuses the upgrade.
    """
    try:
        ws = await client.ws_connect(
            url,
            params=params,
            headers=headers,
            protocols=(WsProtocol.V5.value,),
            max_msg_size=MAX_MESSAGE_BYTES,
        )
    except aiohttp.WSServerHandshakeError as error:
        raise _refusal(error) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(f"cannot connect to {urlsplit(url).netloc}: {error}") from error
    return WebSocketSession(ws)


class WebSocketSession:
    """Client's side of an exec, an attach or a forwarded connection over WebSocket v5. Implements `Session`."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        """`ws`: a connected WebSocket with subprotocol v5."""
        self._ws = ws
        self._report: bytes | None = None
        self._ended = asyncio.Event()

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        try:
            async for channel, data in _messages(self._ws, WsProtocol.V5):
                if channel == Channel.ERROR:
                    self._report = (self._report or b"") + data
                elif channel in (Channel.STDOUT, Channel.STDERR) and data:
                    yield Channel(channel), data
        finally:
            self._ended.set()

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            await _send_message(self._ws, WsProtocol.V5, Channel.STDIN, data[start : start + CHUNK_BYTES])

    async def close_stdin(self) -> None:
        if not self._ws.closed:
            await _send_message(self._ws, WsProtocol.V5, CLOSE_CHANNEL, bytes((Channel.STDIN,)))

    async def resize(self, width: int, height: int) -> None:
        await _send_message(self._ws, WsProtocol.V5, Channel.RESIZE, encode_resize(width, height))

    async def wait(self) -> int:
        """Wait until `output` has ended, and return the exit code.

        Raises Internal, with the server's message, if the command could not be run. Raises Unavailable if the
        connection ended before the server reported a result.
        """
        await self._ended.wait()
        if self._report is None:
            raise Unavailable(
                "the server closed the WebSocket before it reported the command's end; the command may still run"
            )
        return exit_code_of(self._report)

    async def close(self) -> None:
        """Close the WebSocket connection. Output that was not read yet is lost."""
        await self._ws.close()
        self._ended.set()


async def _ping(ws: AnyWebSocket, seconds: float) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError, aiohttp.ClientError):  # the client has left
        while True:
            await asyncio.sleep(seconds)
            await ws.ping()


async def _receive(ws: web.WebSocketResponse, session: Session, protocol: WsProtocol) -> None:
    try:
        async for channel, data in _messages(ws, protocol):
            if channel == Channel.STDIN and data:
                await session.write(data)
            elif channel == Channel.RESIZE and (size := decode_resize(data)):
                await session.resize(size.width, size.height)
            elif channel == CLOSE_CHANNEL and protocol.can_half_close and data[:1] == bytes((Channel.STDIN,)):
                await session.close_stdin()
    except KubeletxError as error:
        log.debug("Stopped reading from a client", err=str(error))
        while not ws.closed:
            await ws.receive()


async def _send(ws: web.WebSocketResponse, session: Session, protocol: WsProtocol) -> None:
    try:
        async for channel, data in session.output():
            for start in range(0, len(data), CHUNK_BYTES):
                await _send_message(ws, protocol, channel, data[start : start + CHUNK_BYTES])
        exit_code = await session.wait()
        if protocol.has_status:
            report = encode_exit(exit_code)
        else:
            report = f"command terminated with exit code {exit_code}".encode() if exit_code else b""
    except KubeletxError as error:
        report = _report(protocol, error)
    if report and not ws.closed:
        with contextlib.suppress(Unavailable):
            await _send_message(ws, protocol, Channel.ERROR, report)


async def _feed(ws: web.WebSocketResponse, protocol: WsProtocol, sessions: Mapping[int, Session]) -> None:
    """Pass the client's messages to the session of their channel, until the client disconnects.

    `sessions`: data channel to the session of its port.
    """
    try:
        async for channel, data in _messages(ws, protocol):
            if channel in sessions:
                try:
                    await sessions[channel].write(data)
                except KubeletxError as error:
                    await _send_message(ws, protocol, channel + 1, str(error).encode())
    except KubeletxError as error:
        log.debug("Stopped reading from a client", err=str(error))


async def _pump(ws: web.WebSocketResponse, protocol: WsProtocol, session: Session, channel: int) -> None:
    try:
        async for _, data in session.output():
            await _send_message(ws, protocol, channel, data)
        await session.wait()
    except KubeletxError as error:
        with contextlib.suppress(Unavailable):
            await _send_message(ws, protocol, channel + 1, str(error).encode())


async def _messages(ws: AnyWebSocket, protocol: WsProtocol) -> AsyncIterator[tuple[int, bytes]]:
    async for message in ws:
        if message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            yield decode_message(protocol, message.data)


async def _send_message(ws: AnyWebSocket, protocol: WsProtocol, channel: int, data: bytes) -> None:
    message = encode_message(protocol, channel, data)
    try:
        if isinstance(message, str):
            await ws.send_str(message)
        else:
            await ws.send_bytes(message)
    except (ConnectionError, RuntimeError, aiohttp.ClientError) as error:
        raise Unavailable(f"channel {channel}: the WebSocket was lost: {error}; connect again") from error


def _report(protocol: WsProtocol, error: KubeletxError) -> bytes:
    return encode_error(error) if protocol.has_status else str(error).encode()


def _refusal(error: aiohttp.WSServerHandshakeError) -> KubeletxError:
    message = f"the server answered {error.status}: {error.message}"
    match error.status:
        case 404:
            return NotFound(message)
        case 401 | 403:
            return PermissionDenied(message)
        case status if status >= 500 or status == 429:
            return Unavailable(message)
    return Internal(message)
