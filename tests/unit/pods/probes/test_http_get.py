"""The small HTTP client of probes and hooks (P5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletx.pods.probes.http_get import BODY_LIMIT_BYTES, GetFailed, HttpGet, get
from tests.unit.pods.servers import answer, free_port, self_signed, web


async def test_a_request_says_who_asks_and_closes_the_connection() -> None:
    async with web(answer(200, b"fine")) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port, path="healthz?full=1"))
    assert (got.status, got.body) == (200, b"fine")
    lines = server.heads[0].split("\r\n")
    assert lines[0] == "GET /healthz?full=1 HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert any(line.startswith("User-Agent: kube-probe/1.") for line in lines)
    assert "Accept: */*" in lines
    assert "Connection: close" in lines


async def test_headers_replace_the_default_ones_and_empty_ones_remove_them() -> None:
    headers = (
        ("Host", "shop"),
        ("user-agent", "me"),
        ("Accept", ""),
        ("X-A", "1"),
        ("X-A", "2"),
        ("X-E", ""),
    )
    async with web(answer()) as server:
        await get(HttpGet(host="127.0.0.1", port=server.port, headers=headers))
    lines = server.heads[0].split("\r\n")
    assert "Host: shop" in lines
    assert "user-agent: me" in lines
    assert not any(line.startswith("Accept") for line in lines)
    assert ("X-A: 1" in lines, "X-A: 2" in lines, "X-E: " in lines) == (True, True, True)


async def test_a_line_break_in_a_header_is_refused() -> None:
    with pytest.raises(GetFailed, match="line break"):
        await get(HttpGet(host="127.0.0.1", port=1, headers=(("X", "a\r\nB: c"),)))


async def test_odd_characters_in_the_path_are_quoted() -> None:
    async with web(answer()) as server:
        await get(HttpGet(host="127.0.0.1", port=server.port, path="/a b/ü?x=%20&y=1#part"))
    assert server.heads[0].startswith("GET /a%20b/%C3%BC?x=%20&y=1 HTTP/1.1\r\n")


async def test_redirects_on_the_same_host_are_followed() -> None:
    def reply(head: str) -> bytes:
        return answer(302, Location="/ok") if head.startswith("GET /start") else answer(200, b"end")

    async with web(reply) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port, path="/start"))
    assert (got.status, got.body) == (200, b"end")


async def test_a_redirect_to_another_host_is_the_answer() -> None:
    async with web(answer(307, Location="http://198.51.100.1/")) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port))
    assert (got.status, got.location, len(server.heads)) == (307, "http://198.51.100.1/", 1)


async def test_the_eleventh_redirect_is_an_error() -> None:
    async with web(answer(302, Location="/again")) as server:
        with pytest.raises(GetFailed, match="10 redirects"):
            await get(HttpGet(host="127.0.0.1", port=server.port))
        assert len(server.heads) == 11


async def test_a_redirect_without_location_is_the_answer() -> None:
    async with web(answer(302)) as server:
        assert (await get(HttpGet(host="127.0.0.1", port=server.port))).status == 302


async def test_certificates_are_not_verified(tmp_path: Path) -> None:
    async with web(answer(200), self_signed(tmp_path)) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port, scheme="https"))
    assert got.status == 200


async def test_a_server_that_speaks_plain_http_is_distinguished() -> None:
    listener = await asyncio.start_server(_reject, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(GetFailed) as caught:
        await get(HttpGet(host="127.0.0.1", port=port, scheme="https"))
    listener.close()
    await listener.wait_closed()
    assert caught.value.is_plain_http


async def _reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\nClient sent an HTTP request")
    await writer.drain()
    writer.close()


async def test_a_closed_port_is_an_error_with_the_address() -> None:
    port = await free_port()
    with pytest.raises(GetFailed, match=f"127.0.0.1:{port}/.*refused") as caught:
        await get(HttpGet(host="127.0.0.1", port=port))
    assert not caught.value.is_plain_http


async def test_no_more_than_10_kib_of_a_body_are_read() -> None:
    async with web(answer(200, b"x" * 100_000)) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port))
    assert len(got.body) == BODY_LIMIT_BYTES


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 204\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", b"x"),
    ],
)
async def test_every_kind_of_body_is_read(raw: bytes, body: bytes) -> None:
    async with web(raw) as server:
        got = await get(HttpGet(host="127.0.0.1", port=server.port))
    assert got.body == body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[bad/\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_broken_answers_are_errors_and_nothing_else(raw: bytes) -> None:
    async with web(raw) as server:
        with pytest.raises(GetFailed):
            await get(HttpGet(host="127.0.0.1", port=server.port))
