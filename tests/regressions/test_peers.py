"""What a probed server or a streaming client sends costs the agent a bounded amount."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice

import pytest

from kubeletx.api import Session, Unavailable
from kubeletx.pods.probes.http_get import MAX_MESSAGE_CHARS, GetFailed, HttpGet, get
from kubeletx.streaming.spdy import (
    Data,
    Decoder,
    Encoder,
    Frame,
    Ping,
    ResetStatus,
    RstStream,
    SpdyConnection,
    SpdyError,
    SpdyStream,
    SynReply,
    SynStream,
)
from kubeletx.streaming.spdy_server import serve_port_forward

MIB = 1024 * 1024


class Endless:
    """A server that sends its first bytes, then repeats one piece until the client is gone."""

    def __init__(self, first: bytes, piece: bytes) -> None:
        self.first, self.piece = first, piece
        self.sent = 0
        self.port = 0
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.first)
            while True:
                writer.write(self.piece * 100)
                await writer.drain()
                self.sent += 100 * len(self.piece)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def endless(first: bytes, piece: bytes) -> AsyncIterator[Endless]:
    server = Endless(first, piece)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
    for task in filter(None, server.tasks):
        task.cancel()
    await asyncio.gather(*filter(None, server.tasks), return_exceptions=True)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "piece", "problem"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", "too many 1xx informational responses"),
        (b"", b"HTTP/1.1 100 Continue\r\nA: " + b"x" * 9000 + b"\r\n\r\n", "1xx|headers are too large"),
        (HEAD, b"A: b\r\n", "headers are too large"),
        (HEAD, b"x", "headers are too large"),
        (HEAD + b"Content-Length: -5\r\n\r\n", b"x", "malformed length b'-5'"),
        (CHUNKED + b"1_0\r\n", b"x", "malformed length b'1_0'"),
        (CHUNKED, b"1;" + b"x" * 1000 + b"\r\nb\r\n", "headers are too large"),
    ],
)
async def test_an_endless_answer_ends_with_an_error(first: bytes, piece: bytes, problem: str) -> None:
    async with endless(first, piece) as server, asyncio.timeout(20):
        with pytest.raises(GetFailed, match=problem):
            await get(HttpGet(host="127.0.0.1", port=server.port))
    assert server.sent < 32 * MIB  # what the kernel takes besides


async def test_five_interim_answers_are_read_and_a_switch_of_protocols_is_an_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5
    async with endless(early + HEAD + b"Content-Length: 0\r\n\r\n", b"x") as server:
        assert (await get(HttpGet(host="127.0.0.1", port=server.port))).status == 200
    async with endless(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"x") as server:
        assert (await get(HttpGet(host="127.0.0.1", port=server.port))).status == 101


async def test_the_url_of_a_redirect_does_not_make_a_long_message() -> None:
    location = b"/" + b"x" * 60_000
    redirect = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %b\r\n\r\n" % location
    async with endless(redirect, b"x") as server:
        with pytest.raises(GetFailed) as caught:
            await get(HttpGet(host="127.0.0.1", port=server.port))
    assert len(str(caught.value)) <= MAX_MESSAGE_CHARS + len("...")


class Flood:
    """A client that sends frames for ever, as the server reads them, and reads no more than `takes` bytes.

    Both ends of a connection without a network: it counts what was read and what waits to be sent.
    """

    def __init__(self, frames: Iterator[Frame], *, takes: int = 0) -> None:
        self._frames, self._encoder = frames, Encoder()
        self._takes = takes
        self.written = bytearray()
        self.read_bytes = 0
        self.blocked = asyncio.Event()

    async def read(self, _n: int = -1, /) -> bytes:
        await asyncio.sleep(0)
        data = b"".join(self._encoder.encode(frame) for frame in islice(self._frames, 1000))
        self.read_bytes += len(data)
        return data

    def write(self, data: bytes, /) -> None:
        self.written += data

    async def drain(self) -> None:
        if len(self.written) > self._takes:
            self.blocked.set()
            await asyncio.Event().wait()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close."""

    async def wait_closed(self) -> None:
        """Nothing to wait for."""


async def run_until_blocked(flood: Flood, connection: SpdyConnection) -> None:
    running = asyncio.create_task(connection.run())
    try:
        async with asyncio.timeout(20):
            await asyncio.wait(
                [running, asyncio.create_task(flood.blocked.wait())], return_when=asyncio.FIRST_COMPLETED
            )
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def pings() -> Iterator[Frame]:
    while True:
        yield Ping(ping_id=1)


def streams(**fields: object) -> Iterator[SynStream]:
    number = 1
    while True:
        yield SynStream(stream_id=number, headers=(("streamtype", "data"), ("requestid", str(number))))
        number += 2


async def test_pings_of_a_client_that_does_not_read_are_answered_up_to_a_limit() -> None:
    flood = Flood(pings())
    await run_until_blocked(flood, SpdyConnection(flood, flood, server=True))
    assert flood.blocked.is_set()
    assert len(flood.written) < 256 * 1024


async def test_pings_of_a_client_that_reads_are_all_answered() -> None:
    flood = Flood((Ping(ping_id=1) for _ in range(50_000)), takes=10 * MIB)
    await SpdyConnection(flood, flood, server=True).run()
    assert len(flood.written) == 50_000 * 12


async def test_refused_streams_of_a_client_that_does_not_read_are_bounded() -> None:
    flood = Flood(streams())
    await run_until_blocked(flood, SpdyConnection(flood, flood, server=True))
    assert flood.blocked.is_set()
    assert len(flood.written) < 256 * 1024


async def test_open_streams_are_bounded() -> None:
    opened: list[SpdyStream] = []
    flood = Flood(islice(streams(), 10_000), takes=10 * MIB)
    await SpdyConnection(flood, flood, server=True, on_stream=opened.append).run()
    assert len(opened) == 2000
    assert flood.written.count(struct.pack(">I", ResetStatus.REFUSED_STREAM)) >= 8000


async def test_many_small_pieces_that_are_not_read_stop_the_reading() -> None:
    def pieces() -> Iterator[Frame]:
        yield SynStream(stream_id=1)
        while True:
            yield Data(stream_id=1, data=b"ab")

    flood = Flood(pieces())
    connection = SpdyConnection(flood, flood, server=True, on_stream=lambda stream: None)
    tracemalloc.start()
    running = asyncio.create_task(connection.run())
    try:
        for _ in range(2000):
            await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
        assert flood.read_bytes < MIB
    finally:
        tracemalloc.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def opened_and_reset(kinds: tuple[str, ...], *, same: bool) -> Iterator[Frame]:
    number = 1
    for request in range(1500):
        for kind in kinds:
            name = "same" if same else str(request)
            yield SynStream(
                stream_id=number, headers=(("streamtype", kind), ("requestid", name), ("port", "80"))
            )
            yield RstStream(stream_id=number, status=5)
            number += 2


@pytest.mark.parametrize(
    ("kinds", "same", "accepted"),
    [(("data",), False, 100), (("error", "data"), False, 2000), (("odd",), True, 0)],
)
async def test_streams_of_a_port_forward_that_are_opened_and_reset_are_bounded(
    kinds: tuple[str, ...], same: bool, accepted: int
) -> None:
    async def connect(_port: int) -> Session:
        await asyncio.Event().wait()
        raise Unavailable("never reached")

    flood = Flood(opened_and_reset(kinds, same=same), takes=100 * MIB)
    await serve_port_forward(flood, flood, connect)
    answers = Decoder().feed(bytes(flood.written))
    assert len([one for one in answers if isinstance(one, SynReply)]) == accepted


async def test_a_header_block_that_is_large_once_decompressed_breaks_the_connection() -> None:
    for headers in ((("a", "x" * 20_000),), tuple((str(number), "") for number in range(101))):
        flood = Flood(iter([SynStream(stream_id=1, headers=headers)]))
        with pytest.raises(SpdyError):
            await SpdyConnection(flood, flood, server=True).run()
