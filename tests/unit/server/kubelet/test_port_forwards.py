"""Port-forwards of the kubelet's API: over SPDY, in a tunnel inside a WebSocket, and in the older WebSocket form."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from kubeletx.api import StreamUrl, Unavailable
from kubeletx.streaming import open_port_forward
from kubeletx.streaming.remote_client import forward_over
from kubeletx.streaming.spdy import SpdyConnection
from kubeletx.streaming.tunnel import Tunnel
from kubeletx.streaming.upgrade import connect_spdy
from kubeletx.testing import FakeSession
from kubeletx.testing.contract.streams import echoed, read_until
from tests.unit.server.api_client import serving
from tests.unit.server.kubelet.streams_model import CAT_PATH, DATA, FORWARD_PATH, TUNNEL, runtime


async def test_ports_are_forwarded_over_spdy_to_sessions_and_to_urls(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, _):
        for found in (FakeSession(echo=True), StreamUrl(f"{url}/forward")):
            api.backend.sessions = [found]
            session = await open_port_forward(api.url + FORWARD_PATH, 8080, tls=api.tls(api.admin))
            await session.write(b"hello")
            assert await read_until(session, bool) == b"hello"
            await session.close()
            assert api.backend.calls[-1] == ("port-forward", "default/web", 8080)


async def test_ports_are_forwarded_over_spdy_inside_a_websocket(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, _), api.client(api.admin) as client:
        for found in (FakeSession(echo=True), StreamUrl(f"{url}/forward")):
            api.backend.sessions = [found]
            async with client.ws_connect(FORWARD_PATH, protocols=(TUNNEL,)) as ws:
                assert ws.protocol == TUNNEL
                async with Tunnel(ws) as tunnel:
                    session = await forward_over(SpdyConnection(tunnel, tunnel), 8080)
                    assert await echoed(session, DATA) == DATA
                    await session.close()
            assert api.backend.calls[-1] == ("port-forward", "default/web", 8080)


async def test_one_tunnel_carries_many_connections_and_reports_why_one_failed(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as api,
        asyncio.timeout(60),
        api.client(api.admin) as client,
        client.ws_connect(FORWARD_PATH, protocols=(TUNNEL,)) as ws,
        Tunnel(ws) as tunnel,
    ):
        api.backend.sessions = [
            FakeSession(echo=True),
            Unavailable("connection refused"),
            FakeSession(echo=True),
        ]
        connection = SpdyConnection(tunnel, tunnel)
        running = asyncio.create_task(connection.run())
        texts = []
        for number, port in enumerate(("8080", "1", "8081")):
            headers = (("port", port), ("requestid", str(number)))
            error = await connection.open_stream((("streamtype", "error"), *headers), fin=True)
            data = await connection.open_stream((("streamtype", "data"), *headers))
            await data.write(port.encode())
            texts.append(await data.read() or await error.read_all())
        assert texts == [b"8080", b"connection refused", b"8081"]
        await connection.close()
        await running


async def test_a_tunnel_is_for_ports_alone_and_for_pods_that_are_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        for path, code in ((CAT_PATH, 403), ("/portForward/default/none", 404)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(path, protocols=(TUNNEL,))
            assert caught.value.status == code
        assert api.backend.calls == []


async def test_a_forwarded_connection_that_ended_holds_up_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60):
        api.backend.sessions = [ended := FakeSession(), FakeSession(echo=True)]
        ended.finish(0)
        reader, writer, _ = await connect_spdy(
            api.url + FORWARD_PATH, ["portforward.k8s.io"], tls=api.tls(api.admin)
        )
        connection = SpdyConnection(reader, writer)
        running = asyncio.create_task(connection.run())
        for number in range(2):
            headers = (("port", "80"), ("requestid", str(number)))
            await connection.open_stream((("streamtype", "error"), *headers), fin=True)
            data = await connection.open_stream((("streamtype", "data"), *headers))
            if number == 0:
                assert await data.read() == b""
                for _ in range(64):  # twice what may wait to be read on a connection
                    await data.write(bytes(1 << 15))
                await data.reset()
            else:
                await data.write(b"hello")
                assert await data.read() == b"hello"
        await connection.close()
        await running


async def test_a_port_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60):
        reader, writer, _ = await connect_spdy(
            api.url + FORWARD_PATH, ["portforward.k8s.io"], tls=api.tls(api.admin)
        )
        connection = SpdyConnection(reader, writer)
        running = asyncio.create_task(connection.run())
        headers = (("port", "99999"), ("requestid", "0"))
        error = await connection.open_stream((("streamtype", "error"), *headers), fin=True)
        await connection.open_stream((("streamtype", "data"), *headers))
        assert await error.read_all() == b"header port: '99999' is not a port: 1 to 65535"
        assert not [call for call in api.backend.calls if call[0] == "port_forward"]
        await connection.close()
        await running


async def test_ports_are_forwarded_over_the_older_websocket_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        api.backend.sessions = [FakeSession(echo=True), FakeSession(echo=True)]
        path = "/portForward/default/web?port=80,8080"
        async with client.ws_connect(path, protocols=("v4.channel.k8s.io",)) as ws:
            heads = [(await ws.receive()).data for _ in range(4)]
            assert heads == [b"\x00P\x00", b"\x01P\x00", b"\x02\x90\x1f", b"\x03\x90\x1f"]
            await ws.send_bytes(b"\x02hello")
            assert (await ws.receive()).data == b"\x02hello"


async def test_a_port_of_the_older_form_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    class Closed(FakeSession):
        async def write(self, data: bytes) -> None:
            raise Unavailable("the far end has closed")

    sessions = (Closed(), FakeSession(echo=True))
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        api.backend.sessions = [Unavailable("connection refused"), *sessions]
        async with client.ws_connect(FORWARD_PATH + "?port=80,81,82", protocols=("v4.channel.k8s.io",)) as ws:
            heads = [await ws.receive_bytes() for _ in range(7)]
            assert b"\x01connection refused" in heads
            await ws.send_bytes(b"\x02x")
            assert await ws.receive_bytes() == b"\x03the far end has closed"
            await ws.send_bytes(b"\x04hello")
            assert await ws.receive_bytes() == b"\x04hello"
            for session in sessions:
                session.finish(0)
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
        assert all(session.closed for session in sessions)


@pytest.mark.parametrize("query", ["", "?port=", "?port=0", "?port=x", "?port=80,65536"])
async def test_the_older_form_needs_ports(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"/portForward/default/web{query}")
        assert caught.value.status == 400
