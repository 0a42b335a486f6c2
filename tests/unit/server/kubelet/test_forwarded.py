"""Port-forward through the kubelet's API: a frozen pod is woken for each connection, over each protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletx.api import Conflict, StreamUrl, Unavailable
from kubeletx.streaming.spdy import SpdyConnection, SpdyStream
from kubeletx.streaming.tunnel import Tunnel
from kubeletx.streaming.upgrade import connect_spdy
from kubeletx.testing import FakeSession
from kubeletx_testing.waiting import until
from tests.unit.server.api_client import Api, serving

FORWARD_PATH = "/portForward/default/web"
TUNNEL = "SPDY/3.1+portforward.k8s.io"


@asynccontextmanager
async def forwarding(api: Api, protocol: str) -> AsyncIterator[SpdyConnection]:
    """A port-forward without any connection yet, over SPDY or over SPDY inside a WebSocket."""
    async with contextlib.AsyncExitStack() as stack:
        if protocol == TUNNEL:
            client = await stack.enter_async_context(api.client(api.admin))
            ws = await stack.enter_async_context(client.ws_connect(FORWARD_PATH, protocols=(TUNNEL,)))
            tunnel = await stack.enter_async_context(Tunnel(ws))
            connection = SpdyConnection(tunnel, tunnel)
        else:
            reader, writer, _ = await connect_spdy(api.url + FORWARD_PATH, [protocol], tls=api.tls(api.admin))
            connection = SpdyConnection(reader, writer)
        running = asyncio.create_task(connection.run())
        try:
            yield connection
        finally:
            await connection.close()
            await running


async def forwarded(connection: SpdyConnection, number: int) -> tuple[SpdyStream, SpdyStream]:
    """The error and the data stream of a new connection to port 80."""
    headers = (("port", "80"), ("requestid", str(number)))
    error = await connection.open_stream((("streamtype", "error"), *headers), fin=True)
    return error, await connection.open_stream((("streamtype", "data"), *headers))


@pytest.mark.parametrize("protocol", ["portforward.k8s.io", TUNNEL])
async def test_a_port_forward_keeps_the_pod_awake_only_while_it_has_connections(
    tmp_path: Path, protocol: str
) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), forwarding(api, protocol) as connection:
        assert api.backend.kept_awake == []
        api.backend.sessions = [first := FakeSession(echo=True), second := FakeSession(echo=True)]
        for number in (0, 1):
            _, data = await forwarded(connection, number)
            await data.write(b"hello")
            assert await data.read() == b"hello"
            assert api.backend.kept_awake == ["default/web"] * (number + 1)
        first.finish(0)
        await until(lambda: api.backend.kept_awake == ["default/web"])
        second.finish(0)
        await until(lambda: not api.backend.kept_awake)
        api.backend.sessions = [FakeSession(echo=True)]
        _, data = await forwarded(connection, 2)
        await data.write(b"again")
        assert await data.read() == b"again"
        assert api.backend.kept_awake == ["default/web"]
    await until(lambda: not api.backend.kept_awake)


@pytest.mark.parametrize(
    "opened", [Unavailable("connection refused"), StreamUrl("http://127.0.0.1:1/forward")]
)
async def test_a_connection_that_cannot_be_opened_keeps_no_pod_awake(
    tmp_path: Path, opened: StreamUrl | Exception
) -> None:
    async with (
        serving(tmp_path) as api,
        asyncio.timeout(60),
        forwarding(api, "portforward.k8s.io") as connection,
    ):
        api.backend.sessions = [opened]
        error, _ = await forwarded(connection, 0)
        assert await error.read_all()
        assert api.backend.kept_awake == []


async def test_all_ports_of_the_older_form_let_the_pod_rest_even_if_one_fails_to_close(
    tmp_path: Path,
) -> None:
    class Unclosed(FakeSession):
        async def close(self) -> None:
            raise Unavailable("the connection is lost")

    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        api.backend.sessions = [Unclosed(), FakeSession()]
        async with client.ws_connect(FORWARD_PATH + "?port=80,81", protocols=("v4.channel.k8s.io",)) as ws:
            for _ in range(4):
                await ws.receive()
            await until(lambda: len(api.backend.kept_awake) == 2)
        await until(lambda: not api.backend.kept_awake)


async def test_a_connection_to_a_frozen_pod_that_is_left_frozen_says_so_and_the_forward_goes_on(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), forwarding(api, TUNNEL) as connection:
        api.backend.errors = [Conflict("pod default/web is standby")]
        error, _ = await forwarded(connection, 0)
        assert await error.read_all() == b"pod default/web is standby"
        api.backend.sessions = [FakeSession(echo=True)]
        _, data = await forwarded(connection, 1)
        await data.write(b"hello")
        assert await data.read() == b"hello"
