"""Our SPDY client against our SPDY server, over real loopback sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeletx.api import Channel, Internal, KubeletxError, NotFound, Session, StreamRequest, Unavailable
from kubeletx.streaming import open_port_forward, open_session
from kubeletx.streaming.spdy import Decoder, Encoder, SynReply, SynStream
from kubeletx.streaming.spdy_server import (
    PORT_FORWARD_PROTOCOLS,
    REMOTE_COMMAND_PROTOCOLS,
    accept_upgrade,
    pick_protocol,
    serve_port_forward,
    serve_remote_command,
)
from kubeletx.streaming.upgrade import connect_spdy
from kubeletx.testing import FakeSession
from kubeletx.testing.contract.streams import read_until

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await handler(reader, writer)
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(serve(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listener, asyncio.timeout(60):
        port = listener.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/exec/token"
        await asyncio.gather(*tasks)


def commands(request: StreamRequest, connect: Callable[[], Awaitable[Session]], **more: Any) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accept_upgrade(REMOTE_COMMAND_PROTOCOLS[0]))
        await serve_remote_command(reader, writer, request, REMOTE_COMMAND_PROTOCOLS[0], connect, **more)

    return handle


def forwards(connect: Callable[[int], Awaitable[Session]]) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accept_upgrade(PORT_FORWARD_PROTOCOLS[0]))
        await serve_port_forward(reader, writer, connect)

    return handle


async def collect(session: Session) -> dict[Channel, bytes]:
    output = {Channel.STDOUT: b"", Channel.STDERR: b""}
    async for channel, data in session.output():
        output[channel] += data
    return output


async def run_to_the_end(url: str) -> int:
    session = await open_session(url, StreamRequest(command=("x",)))
    try:
        await collect(session)
        return await session.wait()
    finally:
        await session.close()


async def test_a_command_s_output_and_exit_code_arrive() -> None:
    async def connect() -> Session:
        session = FakeSession()
        session.send(Channel.STDOUT, b"out")
        session.send(Channel.STDERR, b"err")
        session.finish(3)
        return session

    request = StreamRequest(command=("x",))
    async with server(commands(request, connect)) as url:
        session = await open_session(url, request)
        assert await collect(session) == {Channel.STDOUT: b"out", Channel.STDERR: b"err"}
        assert await session.wait() == 3
        await session.close()
        await session.close()


async def test_a_megabyte_goes_in_and_out_until_the_half_close() -> None:
    async def connect() -> Session:
        return FakeSession(echo=True)

    request = StreamRequest(command=("cat",), stdin=True)
    data = bytes(range(256)) * 16384
    async with server(commands(request, connect)) as url:
        session = await open_session(url, request)

        async def send() -> None:
            await session.write(data)
            await session.close_stdin()

        sending = asyncio.create_task(send())
        assert (await collect(session))[Channel.STDOUT] == data
        await sending
        assert await session.wait() == 0
        await session.close()


async def test_a_terminal_is_resized_and_has_no_stderr() -> None:
    far = FakeSession()

    async def connect() -> Session:
        return far

    request = StreamRequest(command=("sh",), stdin=True, tty=True)
    async with server(commands(request, connect)) as url:
        session = await open_session(url, request)
        await session.resize(80, 24)
        await session.write(b"x")
        assert await far.read_stdin() == b"x"
        while not far.sizes:
            await asyncio.sleep(0)
        far.finish(0)
        assert far.sizes == [(80, 24)]
        assert await session.wait() == 0
        await session.close()


async def test_a_command_that_cannot_be_run_says_why() -> None:
    async def connect() -> Session:
        raise KubeletxError("no such program")

    request = StreamRequest(command=("x",))
    async with server(commands(request, connect)) as url:
        session = await open_session(url, request)
        await collect(session)
        with pytest.raises(Internal, match="no such program"):
            await session.wait()
        await session.close()


async def test_a_client_that_leaves_closes_the_session() -> None:
    far = FakeSession()

    async def connect() -> Session:
        far.send(Channel.STDOUT, b"here")
        return far

    request = StreamRequest(command=("x",))
    async with server(commands(request, connect)) as url:
        session = await open_session(url, request)
        assert await read_until(session, bool) == b"here"
        await session.close()
    assert far.closed


async def test_a_server_that_goes_away_without_a_word_is_unavailable() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accept_upgrade(REMOTE_COMMAND_PROTOCOLS[0]))

    async with server(handle) as url:
        with pytest.raises(Unavailable):
            await run_to_the_end(url)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (429, Unavailable), (400, Internal)])
async def test_a_refused_upgrade_says_why(status: int, kind: type[KubeletxError]) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 9\r\n\r\nthe token".encode())

    async with server(handle) as url:
        with pytest.raises(kind, match="the token"):
            await open_session(url, StreamRequest(command=("x",)))


async def test_a_forwarded_connection_echoes_until_the_half_close() -> None:
    async def connect(port: int) -> Session:
        assert port == 8080
        return FakeSession(echo=True)

    async with server(forwards(connect)) as url:
        session = await open_port_forward(url, 8080)
        await session.write(b"ping")
        await session.close_stdin()
        assert (await collect(session))[Channel.STDOUT] == b"ping"
        assert await session.wait() == 0
        await session.close()


async def test_a_forward_that_is_refused_says_why() -> None:
    async def connect(port: int) -> Session:
        raise KubeletxError("connection refused")

    async with server(forwards(connect)) as url:
        session = await open_port_forward(url, 1)
        assert (await collect(session))[Channel.STDOUT] == b""
        with pytest.raises(Internal, match="connection refused"):
            await session.wait()
        await session.close()


def test_the_best_common_protocol_is_picked_from_lines_and_lists() -> None:
    spoken = REMOTE_COMMAND_PROTOCOLS
    assert pick_protocol(["v5.channel.k8s.io, v4.channel.k8s.io"], spoken) == "v4.channel.k8s.io"
    assert pick_protocol(["channel.k8s.io", "v2.channel.k8s.io"], spoken) == "v2.channel.k8s.io"
    assert pick_protocol(["v9"], spoken) is None


async def test_each_stream_is_answered_at_once_since_clients_wait_for_it() -> None:
    async def connect(port: int) -> Session:
        return FakeSession(echo=True)

    async with server(forwards(connect)) as url:
        reader, writer, _ = await connect_spdy(url, PORT_FORWARD_PROTOCOLS)
        encoder, decoder = Encoder(), Decoder()
        for stream_id, kind in ((1, "error"), (3, "data")):
            headers = (("streamtype", kind), ("port", "80"), ("requestid", "0"))
            writer.write(encoder.encode(SynStream(stream_id=stream_id, headers=headers)))
            replies = decoder.feed(await reader.read(1000))
            assert replies == [SynReply(stream_id=stream_id)]
        writer.close()


async def test_a_client_that_opens_too_few_streams_leaves_no_task() -> None:
    request = StreamRequest(command=("x",))

    async def connect() -> Session:
        raise AssertionError("never connected")

    async with server(commands(request, connect, creation_seconds=0.1)) as url:
        reader, writer, _ = await connect_spdy(url, REMOTE_COMMAND_PROTOCOLS)
        await reader.read()
        writer.close()
    assert not [one for one in asyncio.all_tasks() if "spdy" in one.get_name() or "Queue" in repr(one)]
