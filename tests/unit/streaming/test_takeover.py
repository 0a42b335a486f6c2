"""aiohttp's connections taken over: what its parser cannot do, pinned here for every version of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kubeletx.api import Channel, Session, StreamRequest, Unavailable
from kubeletx.streaming import open_session
from kubeletx.streaming.spdy_server import (
    REMOTE_COMMAND_PROTOCOLS,
    accept_upgrade,
    pick_protocol,
    serve_remote_command,
)
from kubeletx.streaming.takeover import TakenOver, pass_through, take_over
from kubeletx.streaming.upgrade import PROTOCOL_HEADER
from kubeletx.testing import FakeSession
from kubeletx.testing.contract.streams import read_until
from kubeletx_testing.waiting import until

REQUEST = StreamRequest(command=("cat",), stdin=True)


@asynccontextmanager
async def server(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[tuple[str, web.AppRunner]]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(60):
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", runner
    finally:
        await runner.cleanup()


async def serve_cat(request: web.Request) -> web.StreamResponse:
    async def connect() -> Session:
        return FakeSession(echo=True)

    protocol = pick_protocol(request.headers.getall(PROTOCOL_HEADER), REMOTE_COMMAND_PROTOCOLS)
    assert protocol is not None
    pipe = take_over(request)
    pipe.writer.write(accept_upgrade(protocol))
    await serve_remote_command(pipe.reader, pipe.writer, REQUEST, protocol, connect)
    return TakenOver()


async def cat(url: str, data: bytes) -> bytes:
    session = await open_session(url, REQUEST)

    async def send() -> None:
        await session.write(data)
        await session.close_stdin()

    sending = asyncio.create_task(send())
    output = b"".join([chunk async for channel, chunk in session.output() if channel is Channel.STDOUT])
    await sending
    assert await session.wait() == 0
    await session.close()
    return output


async def test_spdy_is_served_on_a_connection_of_aiohttp_which_forgets_it_afterwards() -> None:
    data = bytes(range(256)) * 4096
    async with server(serve_cat) as (url, runner):
        assert await cat(f"{url}/exec/default/web/main", data) == data
        assert runner.server is not None
        await until(lambda: not runner.server.connections)


async def test_a_request_is_passed_through_to_a_streaming_url_and_back() -> None:
    data = bytes(range(256)) * 4096
    async with server(serve_cat) as (backend, _):

        async def forward(request: web.Request) -> web.StreamResponse:
            await pass_through(request, f"{backend}/exec/token")
            return TakenOver()

        async with server(forward) as (front, runner):
            assert await cat(f"{front}/exec/default/web/main", data) == data
            assert runner.server is not None
            await until(lambda: not runner.server.connections)


async def test_a_refusal_of_the_backend_reaches_the_client_with_its_words() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        assert request.path == "/exec/token"
        assert request.headers["Host"].startswith("127.0.0.1:")
        return web.Response(status=503, text="too many tokens")

    async with server(refuse) as (backend, _):

        async def forward(request: web.Request) -> web.StreamResponse:
            await pass_through(request, f"{backend}/exec/token")
            return TakenOver()

        async with server(forward) as (front, _):
            with pytest.raises(Unavailable, match="too many tokens"):
                await open_session(f"{front}/x", REQUEST)


async def test_a_backend_that_is_not_there_leaves_the_connection_with_aiohttp() -> None:
    async def forward(request: web.Request) -> web.StreamResponse:
        try:
            await pass_through(request, "http://127.0.0.1:1/exec/token")
        except Unavailable as error:
            return web.Response(status=502, text=str(error))
        return TakenOver()

    async with server(forward) as (front, _):
        with pytest.raises(Unavailable, match="cannot connect"):
            await open_session(f"{front}/x", REQUEST)


async def test_a_client_that_leaves_ends_both_connections() -> None:
    far = FakeSession()

    async def serve(request: web.Request) -> web.StreamResponse:
        async def connect() -> Session:
            far.send(Channel.STDOUT, b"here")
            return far

        pipe = take_over(request)
        pipe.writer.write(accept_upgrade(REMOTE_COMMAND_PROTOCOLS[0]))
        await serve_remote_command(pipe.reader, pipe.writer, REQUEST, REMOTE_COMMAND_PROTOCOLS[0], connect)
        return TakenOver()

    async with server(serve) as (backend, _):

        async def forward(request: web.Request) -> web.StreamResponse:
            await pass_through(request, f"{backend}/exec/token")
            return TakenOver()

        async with server(forward) as (front, _):
            session = await open_session(f"{front}/x", REQUEST)
            assert await read_until(session, bool) == b"here"
            await session.close()
            await until(lambda: far.closed)
