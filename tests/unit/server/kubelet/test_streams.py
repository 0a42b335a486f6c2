"""Streams of the kubelet's API: our own SPDY and WebSocket servers, and what is handed through."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kubeletx.api import (
    Channel,
    Conflict,
    Internal,
    NotFound,
    PermissionDenied,
    StreamRequest,
    StreamUrl,
    TimedOut,
    Unsupported,
)
from kubeletx.streaming import encode_exit, open_port_forward, open_session
from kubeletx.streaming.serving import open_in_time
from kubeletx.streaming.spdy import Data, Decoder, Encoder, SynStream
from kubeletx.testing import FakeSession
from kubeletx_testing.waiting import until
from tests.unit.server.api_client import IMPATIENT, read_slowly, serving
from tests.unit.server.kubelet.streams_model import (
    CAT,
    CAT_PATH,
    DATA,
    FORWARD_PATH,
    SPDY,
    TUNNEL,
    runtime,
    spdy_cat,
)


async def test_a_session_is_served_over_spdy(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60):
        for path in (CAT_PATH, CAT_PATH.replace("/main", "/u1/main")):
            session = FakeSession(echo=True)
            api.backend.sessions = [session]
            assert await spdy_cat(api, path) == DATA
            assert session.closed
        assert api.backend.calls[-1] == ("exec", "default/web", "main", CAT)


async def test_a_url_is_handed_through_without_the_clients_credentials(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, asked):
        api.backend.sessions = [StreamUrl(f"{url}/exec/t0ken")]
        assert await spdy_cat(api) == DATA
        assert [request.path for request in asked] == ["/exec/t0ken"]
        api.backend.sessions = [StreamUrl(f"{url}/gone")]
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, ssl=api.tls(api.admin))
        lines = [
            f"POST {CAT_PATH} HTTP/1.1",
            "Host: node",
            *(f"{name}: {value}" for name, value in SPDY.items()),
            "Authorization: Bearer s3cret",
            "Cookie: s3cret",
            "X-Stream-Protocol-Version: v4.channel.k8s.io",
        ]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
        await reader.readuntil(b"used up")
        writer.close()
        await writer.wait_closed()
        assert "s3cret" not in repr(dict(asked[-1].headers))
        assert "Upgrade" in asked[-1].headers


SPDY_HEAD = (
    f"GET {CAT_PATH} HTTP/1.1\r\nHost: node\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
    + "".join(f"{name}: {value}\r\n" for name, value in SPDY.items())
)


@asynccontextmanager
async def plain_runtime(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A runtime's server that answers with these bytes and ends; and the heads that it got."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/t0ken", heads


async def test_what_is_handed_through_reaches_a_client_that_reads_slowly_to_its_end(tmp_path: Path) -> None:
    output = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + bytes(700_000)
    async with (
        serving(tmp_path, listen=IMPATIENT) as api,
        plain_runtime(output) as (url, _),
        asyncio.timeout(60),
    ):
        api.backend.sessions = [StreamUrl(url)]
        assert await read_slowly(api, SPDY_HEAD.encode() + b"\r\n", 1.5) == output


async def test_output_of_a_session_reaches_a_client_that_reads_slowly_to_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path, listen=IMPATIENT) as api, asyncio.timeout(60):
        session = FakeSession()
        session.send(Channel.STDOUT, bytes(600_000))
        session.finish(0)
        api.backend.sessions = [session]
        encoder, decoder = Encoder(), Decoder()
        opened = [
            encoder.encode(SynStream(stream_id=number, headers=(("streamtype", kind),)))
            for number, kind in ((1, "error"), (3, "stdout"))
        ]
        head = SPDY_HEAD.replace("&input=1", "") + "\r\n"
        answer = await read_slowly(api, head.encode(), 1.5, b"".join(opened))
        frames = decoder.feed(answer.partition(b"\r\n\r\n")[2])
        assert sum(len(one.data) for one in frames if isinstance(one, Data) and one.stream_id == 3) == 600_000
        assert any(isinstance(one, Data) and b"Success" in one.data for one in frames)


async def test_headers_in_any_letters_are_handed_through_as_they_came(tmp_path: Path) -> None:
    refused = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    async with serving(tmp_path) as api, plain_runtime(refused) as (url, heads), asyncio.timeout(60):
        api.backend.sessions = [StreamUrl(url)]
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, ssl=api.tls(api.admin))
        agent = "User-Agent: ключ ".encode() + b"\xff"
        writer.write(SPDY_HEAD.encode() + agent + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        assert agent in heads[0]
        writer.close()


async def test_a_refusal_of_the_runtime_reaches_the_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, _):
        api.backend.sessions = [StreamUrl(f"{url}/gone")]
        with pytest.raises(NotFound, match="the token is used up"):
            await spdy_cat(api)


async def test_a_refusal_of_the_agent_is_the_answer_to_the_upgrade(tmp_path: Path) -> None:
    refusal = Unsupported("commands in machine default/web have no terminal; leave -t out")
    async with serving(tmp_path) as api, asyncio.timeout(60):
        api.backend.sessions = [refusal] * 3
        with pytest.raises(Internal, match="answered 405: commands in machine default/web have no terminal"):
            await spdy_cat(api)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with api.client(api.admin) as client:
                await client.ws_connect(CAT_PATH, protocols=("v4.channel.k8s.io",))
        assert caught.value.status == 405
        headers = {**SPDY, "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
        _, body = await api.ask("POST", CAT_PATH, certificate=api.admin, headers=headers)
        # kubectl reads text as YAML, in which a colon makes an object of it: one without any message.
        status = json.loads(body)
        assert (status["kind"], status["code"]) == ("Status", 405)
        assert status["message"].endswith("have no terminal; leave -t out")


async def test_clients_that_offer_too_new_protocols_get_the_best_that_is_spoken(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        repeated = [
            ("X-Stream-Protocol-Version", word) for word in ("v5.channel.k8s.io", "v4.channel.k8s.io")
        ]
        joined = [("X-Stream-Protocol-Version", "v5.channel.k8s.io, v4.channel.k8s.io,channel.k8s.io")]
        for offered in (repeated, joined):
            api.backend.sessions = [FakeSession(echo=True)]
            async with client.post(CAT_PATH, headers=[*SPDY.items(), *offered]) as answer:
                assert answer.status == 101
                assert answer.headers["X-Stream-Protocol-Version"] == "v4.channel.k8s.io"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (SPDY, 400),
        ({**SPDY, "X-Stream-Protocol-Version": "v9.channel.k8s.io"}, 403),
        ({"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}, 400),
        ({"Connection": "Upgrade", "Upgrade": "h2c"}, 400),
        ({"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}, 400),
        (
            {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"},
            400,
        ),
    ],
)
async def test_an_upgrade_that_no_one_understands_runs_no_command(
    tmp_path: Path, headers: dict[str, str], code: int
) -> None:
    async with serving(tmp_path) as api:
        answer = await api.ask("POST", CAT_PATH, certificate=api.admin, headers=headers)
        assert answer[0] == code
        assert api.backend.calls == []


async def test_websocket_subprotocols_that_no_one_speaks_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(CAT_PATH, protocols=("v9.channel.k8s.io",))
        assert caught.value.status == 403
        assert api.backend.calls == []


@pytest.mark.parametrize(
    "protocol", ["", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io"]
)
async def test_a_session_is_served_over_every_websocket_subprotocol(tmp_path: Path, protocol: str) -> None:
    is_text = protocol.startswith("base64")
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        session = FakeSession()
        api.backend.sessions = [session]
        async with client.ws_connect(CAT_PATH, protocols=(protocol,) if protocol else ()) as ws:
            assert ws.protocol == (protocol or None)
            first = await ws.receive()
            assert first.data == ("1" if is_text else b"\x01")
            await ws.send_str("0" + base64.b64encode(b"in").decode()) if is_text else await ws.send_bytes(
                b"\x00in"
            )
            assert await session.read_stdin() == b"in"
            session.send(Channel.STDOUT, b"out")
            got = (await ws.receive()).data
            assert got == ("1" + base64.b64encode(b"out").decode() if is_text else b"\x01out")
            session.finish(3)
            report = (await ws.receive()).data
            if protocol[:2] in ("v4", "v5"):
                assert report == b"\x03" + encode_exit(3)
            else:
                text = base64.b64decode(report[1:]) if is_text else report[1:]
                assert text == b"command terminated with exit code 3"


async def test_websocket_v5_is_spoken_in_front_of_a_runtime_that_knows_only_spdy(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, _), api.client(api.admin) as client:
        api.backend.sessions = [StreamUrl(f"{url}/exec/t0ken")]
        async with client.ws_connect(CAT_PATH, protocols=("v5.channel.k8s.io",)) as ws:
            await ws.receive()
            await ws.send_bytes(b"\x00hello")
            assert (await ws.receive()).data == b"\x01hello"
            await ws.send_bytes(b"\xff\x00")
            status = (await ws.receive()).data
            assert json.loads(status[1:])["status"] == "Success"


async def test_only_what_api_servers_once_translated_is_counted(tmp_path: Path) -> None:
    asked = (
        (CAT_PATH, "v4.channel.k8s.io"),
        (CAT_PATH, "v5.channel.k8s.io"),
        (CAT_PATH.replace("exec", "attach"), "v5.channel.k8s.io"),
        (FORWARD_PATH, TUNNEL),
        (f"{FORWARD_PATH}?port=80", "v4.channel.k8s.io"),
    )
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        for path, protocol in asked:
            api.backend.sessions = [FakeSession(echo=True)]
            async with client.ws_connect(path, protocols=(protocol,)):
                pass
        assert api.websockets == {"exec": 1, "attach": 1, "portforward": 1}


async def test_a_runtime_that_opens_no_connection_in_time_is_reported_to_the_client(tmp_path: Path) -> None:
    with pytest.raises(TimedOut, match=r"opened no streams within 0\.05s") as late:
        await open_in_time(asyncio.Future(), 0.05)
    async with serving(tmp_path) as api, asyncio.timeout(60):
        api.backend.sessions = [late.value, late.value]
        session = await open_port_forward(api.url + FORWARD_PATH, 8080, tls=api.tls(api.admin))
        with pytest.raises(Internal, match=r"opened no streams within 0\.05s"):
            await session.wait()
        await session.close()
        async with api.client(api.admin) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(CAT_PATH, protocols=("v5.channel.k8s.io",))
        assert caught.value.status == 504


async def test_streams_of_ours_that_carry_nothing_are_closed(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, idle_seconds=0.5) as api,
        asyncio.timeout(60),
        api.client(api.admin) as client,
    ):
        path = api.url + CAT_PATH
        commands = [FakeSession(), FakeSession(), FakeSession()]
        api.backend.sessions = list(commands)
        session = await open_session(path, CAT, tls=api.tls(api.admin))
        assert [chunk async for chunk in session.output()] == []
        await session.close()
        for protocol in ("v5.channel.k8s.io", "v4.channel.k8s.io"):
            async with client.ws_connect(CAT_PATH, protocols=(protocol,)) as ws:
                assert [message.data async for message in ws] == [b"\x01"]
        assert all(command.closed for command in commands)
        forwards = [FakeSession(), FakeSession()]
        api.backend.sessions = list(forwards)
        session = await open_port_forward(api.url + FORWARD_PATH, 8080, tls=api.tls(api.admin))
        assert [chunk async for chunk in session.output()] == []
        await session.close()
        async with client.ws_connect(f"{FORWARD_PATH}?port=80") as ws:
            assert len([message async for message in ws]) == 2
        assert all(forward.closed for forward in forwards)
        async with client.ws_connect(FORWARD_PATH, protocols=(TUNNEL,)) as ws:
            assert {message.data[:2] async for message in ws} == {b"\x80\x03"}  # frames that say good-bye
            assert ws.close_code == 1000


async def test_streams_that_are_handed_through_and_carry_nothing_are_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, idle_seconds=0.5) as api, runtime() as (url, asked):
        api.backend.sessions = [StreamUrl(f"{url}/exec/t0ken")]
        session = await open_session(api.url + CAT_PATH, CAT, tls=api.tls(api.admin))
        assert [chunk async for chunk in session.output()] == []
        await session.close()
        assert len(asked) == 1


async def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        session = FakeSession()
        session.send(Channel.STDOUT, b"out")
        session.send(Channel.STDERR, b"err")
        session.finish(1)
        api.backend.sessions = [session]
        answer = await api.ask("POST", "/run/default/web/main?cmd=ls%20-l", certificate=api.admin)
        assert answer == (200, "outerr")
        assert api.backend.calls[-1] == ("exec", "default/web", "main", StreamRequest(command=("ls", "-l")))
        assert (await api.ask("POST", "/run/default/web/main", certificate=api.admin))[0] == 400


async def test_no_stream_without_a_right(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60):
        with pytest.raises(PermissionDenied, match="Unauthorized"):
            await open_session(api.url + CAT_PATH, CAT, tls=api.tls(None))
        assert api.backend.calls == []


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        (CAT_PATH, "v5.channel.k8s.io"),
        (CAT_PATH.replace("exec", "attach"), "v5.channel.k8s.io"),
        (f"{FORWARD_PATH}?port=80", "v4.channel.k8s.io"),
    ],
)
async def test_the_pod_is_kept_awake_while_a_stream_is_open(tmp_path: Path, path: str, protocol: str) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60), api.client(api.admin) as client:
        api.backend.sessions = [FakeSession(echo=True)]
        async with client.ws_connect(path, protocols=(protocol,)) as ws:
            await ws.receive()
            await until(lambda: api.backend.kept_awake == ["default/web"])
        await until(lambda: not api.backend.kept_awake)


async def test_the_pod_is_kept_awake_while_a_stream_is_handed_through(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, runtime() as (url, _), asyncio.timeout(60):
        api.backend.sessions = [StreamUrl(f"{url}/exec/t0ken")]
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, ssl=api.tls(api.admin))
        writer.write(f"{SPDY_HEAD}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert api.backend.kept_awake == ["default/web"]
        writer.close()
        await writer.wait_closed()
        await until(lambda: not api.backend.kept_awake)


async def test_a_frozen_pod_that_is_left_frozen_is_the_answer_to_the_upgrade(tmp_path: Path) -> None:
    headers = {**SPDY, "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    async with serving(tmp_path) as api, asyncio.timeout(60):
        for path in (CAT_PATH, "/run/default/web/main?cmd=true"):
            api.backend.errors = [Conflict("pod default/web is standby")]
            status, body = await api.ask("POST", path, certificate=api.admin, headers=headers)
            assert (status, "is standby" in body) == (409, True)
