"""Paths of streams, a client that runs cat, and a runtime's own streaming server, for tests of streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from kubeletx.api import Channel, StreamRequest
from kubeletx.streaming import open_session
from kubeletx.streaming.spdy_server import accept_upgrade, serve_port_forward, serve_remote_command
from kubeletx.streaming.takeover import TakenOver, take_over
from kubeletx.testing import FakeSession
from tests.unit.server.api_client import Api

CAT = StreamRequest(command=("cat",), stdin=True, stderr=False)
CAT_PATH = "/exec/default/web/main?command=cat&input=1&output=1"
DATA = bytes(range(256)) * 4096
FORWARD_PATH = "/portForward/default/web"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}


async def spdy_cat(api: Api, path: str = CAT_PATH, data: bytes = DATA) -> bytes:
    session = await open_session(api.url + path, CAT, tls=api.tls(api.admin))

    async def send() -> None:
        await session.write(data)
        await session.close_stdin()

    sending = asyncio.create_task(send())
    output = b"".join([chunk async for channel, chunk in session.output() if channel is Channel.STDOUT])
    await sending
    assert await session.wait() == 0
    await session.close()
    return output


@asynccontextmanager
async def runtime() -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A runtime's own streaming server, with SPDY only: cat at every path, and what it was asked."""
    asked: list[web.Request] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        if request.path == "/gone":
            raise web.HTTPNotFound(text="the token is used up")

        async def connect(port: int = 0) -> FakeSession:
            return FakeSession(echo=True)

        pipe = take_over(request)
        if request.path == "/forward":
            pipe.writer.write(accept_upgrade("portforward.k8s.io"))
            await serve_port_forward(pipe.reader, pipe.writer, connect)
        else:
            pipe.writer.write(accept_upgrade("v4.channel.k8s.io"))
            await serve_remote_command(pipe.reader, pipe.writer, CAT, "v4.channel.k8s.io", connect)
        return TakenOver()

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with asyncio.timeout(60):
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()
