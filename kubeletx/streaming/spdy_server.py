"""Server side of exec, attach and port-forward over SPDY/3.1.

The caller reads the HTTP request, authorizes it, and sends the answer of `accept_upgrade`. Then `serve_remote_command`
serves one exec or attach, or `serve_port_forward` any number of forwarded connections, each with an error and a data
stream. Both return when the client has disconnected or the work is done, and close the connection.

Subprotocols of exec and attach: v1 and v2 report the result as text, v3 adds the resize stream, v4 reports the result
as a Status object. This server does not offer v5 over SPDY; clients that offer v5 also offer v4, which is then used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable

import structlog

from kubeletx.api import (
    KubeletxError,
    Session,
    StreamRequest,
    Unavailable,
    first_of,
)

from .channels import decode_resize
from .spdy import ByteReader, ByteWriter, ResetStatus, SpdyConnection, SpdyError, SpdyStream
from .status import encode_error, encode_exit
from .upgrade import PROTOCOL_HEADER

log = structlog.get_logger(__name__)

REMOTE_COMMAND_PROTOCOLS = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
PORT_FORWARD_PROTOCOLS = ("portforward.k8s.io",)
CREATION_SECONDS = 30.0
"""Time limit for a client to open the streams that it has requested."""
MAX_ARRIVED = 16
"""Maximum number of streams that a client of exec or attach has opened and that are not processed yet.

Further streams are refused.
"""
MAX_FORWARDS = 1000
MAX_HALF_PAIRS = 100

_PAIR = frozenset({"error", "data"})

Connect = Callable[[], Awaitable[Session]]
ConnectPort = Callable[[int], Awaitable[Session]]


def pick_protocol(offered: Iterable[str], spoken: tuple[str, ...]) -> str | None:
    """Return the first protocol of `spoken` that the client offers; None if it offers none of them.

    `spoken`: protocols that the server supports, in order of preference. `offered`: the values of the client's
    header lines, such as X-Stream-Protocol-Version; each may be a comma-separated list.
    """
    words = {word.strip() for line in offered for word in line.split(",")}
    return next((protocol for protocol in spoken if protocol in words), None)


def accept_upgrade(protocol: str) -> bytes:
    """Return the HTTP answer (101 Switching Protocols) that upgrades the connection to SPDY/3.1.

    `protocol`: the subprotocol that `pick_protocol` has returned.
    """
    return (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        f"{PROTOCOL_HEADER}: {protocol}\r\n\r\n"
    ).encode()


async def serve_remote_command(
    reader: ByteReader,
    writer: ByteWriter,
    request: StreamRequest,
    protocol: str,
    connect: Connect,
    *,
    creation_seconds: float = CREATION_SECONDS,
) -> None:
    """Serve one exec or attach: wait for the client's streams, open the session with `connect`, and copy data.

    `reader`, `writer`: the connection after the upgrade. `request`: the streams that the client has requested.
    `protocol`: the subprotocol. Returns when the session has ended or the client has disconnected, and closes the
    session and the connection.
    """
    arrived: asyncio.Queue[SpdyStream] = asyncio.Queue(MAX_ARRIVED)

    def arrive(stream: SpdyStream) -> None:
        if arrived.full():
            stream.refuse()
        else:
            arrived.put_nowait(stream)

    connection = SpdyConnection(reader, writer, server=True, on_stream=arrive)
    running = asyncio.create_task(_run(connection), name="spdy-server")
    try:
        wanted = _expected(request, protocol)
        streams = await _streams_of(connection, arrived, wanted, creation_seconds, running)
        if streams is not None:
            await _serve(streams, protocol, connect, running)
            await connection.flush()
    finally:
        await connection.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def serve_port_forward(reader: ByteReader, writer: ByteWriter, connect: ConnectPort) -> None:
    """Serve port-forward until the client disconnects, and close the connection.

    Each forwarded connection is a pair of an error and a data stream with the same header requestID. `connect`:
    opens a session to a port. New streams are refused while there are `MAX_FORWARDS` forwarded connections, or
    `MAX_HALF_PAIRS` streams that wait for the other stream of their pair.
    """
    pairs: dict[str, dict[str, SpdyStream]] = {}
    forwards: set[asyncio.Task[None]] = set()

    def take(stream: SpdyStream) -> None:
        request, kind = stream.header("requestid"), stream.header("streamtype")
        is_too_much = len(forwards) >= MAX_FORWARDS or (request not in pairs and len(pairs) >= MAX_HALF_PAIRS)
        if kind not in _PAIR or is_too_much:
            stream.refuse()
            return
        connection.accept(stream)
        forwards_of = pairs.setdefault(request, {})
        forwards_of[kind] = stream
        if forwards_of.keys() >= _PAIR:
            del pairs[request]
            task = asyncio.create_task(
                _forward(forwards_of["error"], forwards_of["data"], connect),
                name=f"port-forward-{stream.header('port')}",
            )
            forwards.add(task)
            task.add_done_callback(forwards.discard)

    connection = SpdyConnection(reader, writer, server=True, on_stream=take)
    try:
        await _run(connection)
    finally:
        for task in forwards:
            task.cancel()
        await asyncio.gather(*forwards, return_exceptions=True)
        await connection.close()


def _expected(request: StreamRequest, protocol: str) -> set[str]:
    wanted = {"error"}
    if request.stdin:
        wanted.add("stdin")
    if request.stdout:
        wanted.add("stdout")
    if request.stderr and not request.tty:
        wanted.add("stderr")
    if request.tty and protocol in REMOTE_COMMAND_PROTOCOLS[:2]:
        wanted.add("resize")
    return wanted


async def _streams_of(
    connection: SpdyConnection,
    arrived: asyncio.Queue[SpdyStream],
    wanted: set[str],
    seconds: float,
    running: asyncio.Task[None],
) -> dict[str, SpdyStream] | None:
    streams: dict[str, SpdyStream] = {}
    try:
        async with asyncio.timeout(seconds):
            while wanted - streams.keys():
                stream = await _next(arrived, running)
                if stream is None:
                    return None
                kind = stream.header("streamtype")
                if kind in wanted and kind not in streams:
                    connection.accept(stream)
                    streams[kind] = stream
                else:
                    await stream.reset(ResetStatus.REFUSED_STREAM)
    except (TimeoutError, Unavailable):
        log.warning("Gave up waiting for a client's streams", missing=sorted(wanted - streams.keys()))
        return None
    return streams


async def _next(arrived: asyncio.Queue[SpdyStream], running: asyncio.Task[None]) -> SpdyStream | None:
    """Wait for the next stream that the client opens, and return it; None if the client's connection has ended."""
    stream, _ = await first_of("spdy-next-stream", arrived.get(), running)
    return stream.result() if stream is not None else None


async def _serve(
    streams: dict[str, SpdyStream],
    protocol: str,
    connect: Connect,
    running: asyncio.Task[None],
) -> None:
    error = streams["error"]
    try:
        session = await connect()
    except KubeletxError as failure:
        await _report(error, protocol, failure)
        return
    try:
        inputs = [asyncio.create_task(_input(session, streams), name="spdy-input")]
        if "resize" in streams:
            inputs.append(asyncio.create_task(_resize(session, streams["resize"]), name="spdy-resize"))
        try:
            await first_of("spdy-output", _output(session, streams, protocol), running)
        finally:
            for task in inputs:
                task.cancel()
            await asyncio.gather(*inputs, return_exceptions=True)
    finally:
        await session.close()


async def _output(session: Session, streams: dict[str, SpdyStream], protocol: str) -> None:
    outcome: int | KubeletxError
    try:
        async for channel, data in session.output():
            stream = streams.get(channel.name.lower())
            if stream is not None:
                await stream.write(data)
        outcome = await session.wait()
    except KubeletxError as failure:
        outcome = failure
    with contextlib.suppress(Unavailable):
        await _report(streams["error"], protocol, outcome)
        for kind in ("stdout", "stderr"):
            if kind in streams:
                await streams[kind].close_write()


async def _report(error: SpdyStream, protocol: str, outcome: int | KubeletxError) -> None:
    if protocol == REMOTE_COMMAND_PROTOCOLS[0]:
        report = encode_exit(outcome) if isinstance(outcome, int) else encode_error(outcome)
    elif isinstance(outcome, int):
        report = f"command terminated with exit code {outcome}".encode() if outcome else b""
    else:
        report = str(outcome).encode()
    await error.write(report)
    await error.close_write()


async def _input(session: Session, streams: dict[str, SpdyStream]) -> None:
    stream = streams.get("stdin")
    if stream is None:
        return
    try:
        with contextlib.suppress(KubeletxError):
            while data := await stream.read():
                await session.write(data)
            await session.close_stdin()
    finally:
        stream.discard()


async def _resize(session: Session, stream: SpdyStream) -> None:
    while data := await stream.read():
        for line in data.split(b"\n"):
            if size := decode_resize(line):
                await session.resize(size.width, size.height)


async def _forward(error: SpdyStream, data: SpdyStream, connect: ConnectPort) -> None:
    error.discard()  # only this side sends on the error stream
    try:
        session = await connect(_port(data.header("port")))
    except KubeletxError as failure:
        with contextlib.suppress(Unavailable):  # the client left before it read the error
            await error.write(str(failure).encode())
            await error.close_write()
            await data.reset()
        return
    sending = asyncio.create_task(_input(session, {"stdin": data}), name="port-forward-input")
    try:
        async for _, chunk in session.output():
            await data.write(chunk)
        await session.wait()
        await data.close_write()
    except KubeletxError as failure:
        with contextlib.suppress(Unavailable):
            await error.write(str(failure).encode())
    finally:
        sending.cancel()
        try:
            await asyncio.gather(sending, return_exceptions=True)
            data.discard()  # the task may not even have begun
            with contextlib.suppress(Unavailable):
                await error.close_write()
                await data.close_write()
        finally:  # a server that stops cancels a second time
            await session.close()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
        raise KubeletxError(f"header port: {text[:20]!r} is not a port: 1 to 65535")
    return int(text)


async def _run(connection: SpdyConnection) -> None:
    try:
        await connection.run()
    except SpdyError as error:
        log.warning("A client broke the SPDY protocol", err=str(error))
