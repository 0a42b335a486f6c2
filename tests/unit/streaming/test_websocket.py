"""Our WebSocket client and server, and the older subprotocols by hand."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kubeletx.api import Channel, Internal, KubeletxError, NotFound, Session
from kubeletx.streaming.channels import PROTOCOLS
from kubeletx.streaming.websocket import (
    connect_session,
    send_error,
    serve_port_forward,
    serve_remote_command,
    websocket_response,
)
from kubeletx.testing import FakeSession
from kubeletx_testing.waiting import until

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def served(path: Path, serve: Serve) -> AsyncIterator[aiohttp.ClientSession]:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = websocket_response()
        await ws.prepare(request)
        await serve(ws)
        return ws

    app = web.Application()
    app.router.add_get("/exec", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    socket = str(path / "agent.sock")
    await web.UnixSite(runner, socket).start()
    try:
        async with (
            asyncio.timeout(60),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as client,
        ):
            yield client
    finally:
        await runner.cleanup()


async def collect(session: Session) -> dict[Channel, bytes]:
    output = {Channel.STDOUT: b"", Channel.STDERR: b""}
    async for channel, data in session.output():
        output[channel] += data
    return output


async def test_a_command_that_takes_its_time_with_its_input_is_not_cut(tmp_path: Path) -> None:
    class Slow(FakeSession):
        async def write(self, data: bytes) -> None:
            await asyncio.sleep(0.02)
            await super().write(data[:1])

    async def serve(ws: web.WebSocketResponse) -> None:
        await serve_remote_command(ws, Slow(echo=True), ping_seconds=0.05)

    async with (
        served(tmp_path, serve) as client,
        client.ws_connect("http://agent/exec", protocols=("v5.channel.k8s.io",)) as ws,
    ):
        for _ in range(40):
            await ws.send_bytes(b"\0" + bytes(50_000))
        await ws.send_bytes(b"\xff\0")
        output = [message.data async for message in ws]
    assert b"".join(one[1:] for one in output if one[0] == 1) == bytes(40)
    assert b"Success" in output[-1]


async def test_a_command_s_output_and_exit_code_arrive(tmp_path: Path) -> None:
    async def serve(ws: web.WebSocketResponse) -> None:
        session = FakeSession()
        session.send(Channel.STDOUT, b"out")
        session.send(Channel.STDERR, b"err")
        session.finish(3)
        await serve_remote_command(ws, session)

    async with served(tmp_path, serve) as client:
        session = await connect_session(client, "http://agent/exec", [("command", "x")])
        assert await collect(session) == {Channel.STDOUT: b"out", Channel.STDERR: b"err"}
        assert await session.wait() == 3
        await session.close()
        await session.close()


async def test_input_is_echoed_until_the_half_close(tmp_path: Path) -> None:
    far: list[FakeSession] = []

    async def serve(ws: web.WebSocketResponse) -> None:
        far.append(FakeSession(echo=True))
        await serve_remote_command(ws, far[0])

    data = bytes(range(256)) * 4096
    async with served(tmp_path, serve) as client:
        session = await connect_session(client, "http://agent/exec")
        await session.resize(80, 24)

        async def send() -> None:
            await session.write(data)
            await session.close_stdin()

        sending = asyncio.create_task(send())
        assert (await collect(session))[Channel.STDOUT] == data
        await sending
        assert await session.wait() == 0
        await session.close()
    assert far[0].sizes == [(80, 24)]


async def test_a_client_that_leaves_closes_the_session(tmp_path: Path) -> None:
    far: list[FakeSession] = []

    async def serve(ws: web.WebSocketResponse) -> None:
        far.append(FakeSession())
        await serve_remote_command(ws, far[0])

    async with served(tmp_path, serve) as client:
        session = await connect_session(client, "http://agent/exec")
        await session.close()
        await until(lambda: far and far[0].closed)


async def test_a_session_that_could_not_be_made_says_why(tmp_path: Path) -> None:
    async def serve(ws: web.WebSocketResponse) -> None:
        await send_error(ws, KubeletxError("no such container"))

    async with served(tmp_path, serve) as client:
        session = await connect_session(client, "http://agent/exec")
        await collect(session)
        with pytest.raises(Internal, match="no such container"):
            await session.wait()
        await session.close()


async def test_a_refused_upgrade_is_our_error(tmp_path: Path) -> None:
    async def serve(ws: web.WebSocketResponse) -> None: ...

    async with served(tmp_path, serve) as client:
        with pytest.raises(NotFound):
            await connect_session(client, "http://agent/nothing")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_subprotocol_carries_both_directions_and_the_end(tmp_path: Path, protocol: str) -> None:
    async def serve(ws: web.WebSocketResponse) -> None:
        session = FakeSession()

        async def far() -> None:
            session.send(Channel.STDERR, b"got " + await session.read_stdin())
            session.finish(2)

        task = asyncio.create_task(far())
        await serve_remote_command(ws, session)
        await task

    text = "base64" in protocol
    async with (
        served(tmp_path, serve) as client,
        client.ws_connect("http://agent/exec", protocols=[protocol]) as ws,
    ):
        assert ws.protocol == protocol
        first = await ws.receive()
        assert first.data == ("1" if text else b"\x01")
        if text:
            await ws.send_str("0" + base64.b64encode(b"hello").decode())
        else:
            await ws.send_bytes(b"\x00hello")
        messages = [message.data async for message in ws]
    if text:
        messages = [message[0].encode() + base64.b64decode(message[1:]) for message in messages]
        messages = [bytes([message[0] - ord("0")]) + message[1:] for message in messages]
    assert messages[0] == b"\x02got hello"
    assert messages[1][0] == Channel.ERROR
    if protocol.startswith("v"):
        status = json.loads(messages[1][1:])
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "2"}]
    else:
        assert messages[1][1:] == b"command terminated with exit code 2"


async def test_the_older_port_forward_has_two_channels_for_each_port(tmp_path: Path) -> None:
    async def connect(port: int) -> Session:
        if port == 2:
            raise KubeletxError("connection refused")
        return FakeSession(echo=True)

    async def serve(ws: web.WebSocketResponse) -> None:
        await serve_port_forward(ws, [8080], connect)

    async with (
        served(tmp_path, serve) as client,
        client.ws_connect("http://agent/exec", protocols=["v4.channel.k8s.io"]) as ws,
    ):
        assert (await ws.receive()).data == b"\x00\x90\x1f"
        assert (await ws.receive()).data == b"\x01\x90\x1f"
        await ws.send_bytes(b"\x00ping")
        assert (await ws.receive()).data == b"\x00ping"


async def test_a_session_is_closed_when_its_client_left_before_the_first_message(tmp_path: Path) -> None:
    sessions: list[FakeSession] = []

    async def serve(ws: web.WebSocketResponse) -> None:
        await ws.close()
        sessions.append(FakeSession())
        await serve_remote_command(ws, sessions[0])

    async with served(tmp_path, serve) as client:
        session = await connect_session(client, "http://agent/exec", [("command", "x")])
        await collect(session)
        await session.close()
    assert sessions[0].closed
