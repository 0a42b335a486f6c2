"""What the page answers to clients that are not the administrator's browser, and how little they cost."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubeletx_web.access import HEADERS, SESSION_SECONDS, TOKEN_SECONDS, LocalAccess
from kubeletx_web.agent import READS, Agent
from kubeletx_web.http import serving
from kubeletx_web.server import Pages

from kubeletx.testing import FakeClock
from plugins.web.tests.fake_agent import FakeAgent

DEADLINE = 60.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""It is refused with status 421, because of its host."""


class Page:
    """A page that is served on a free port, and a client without a session."""

    def __init__(self, directory: Path) -> None:
        self.agent = FakeAgent()
        self.clock = FakeClock()
        self.access = LocalAccess(self.clock)
        self.pages = Pages(Agent(directory / "agent.sock"), self.access)
        self.port = 0
        self.client = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))  # for an IP address

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def enter(self) -> None:
        """Use the link."""
        async with self.client.get(f"{self.url}/?token={self.access.token}") as answer:
            assert answer.status == 200

    async def status(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and text of an answer, which has the headers of every answer."""
        async with self.client.request(method, f"{self.url}{path}", headers=headers) as answer:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
            return answer.status, await answer.text()

    async def raw(self, data: bytes, address: str = "127.0.0.1") -> bytes:
        """Send bytes from this address and return everything until the server's end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        try:
            writer.write(data)
            async with asyncio.timeout(DEADLINE):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    def cookie(self) -> str:
        return "; ".join(f"{one.key}={one.value}" for one in self.client.cookie_jar)


Start = Callable[..., Awaitable["Page"]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a page, with keyword arguments of `serving`."""
    async with AsyncExitStack() as stack:

        async def begin(**arguments: Any) -> Page:
            page = Page(tmp_path)
            stack.push_async_callback(page.client.close)
            await stack.enter_async_context(page.agent.serving(tmp_path / "agent.sock"))
            stack.push_async_callback(page.pages.close)
            page.port = await stack.enter_async_context(
                serving(page.pages.respond, "port", "127.0.0.1", 0, write_seconds=0.2, **arguments)
            )
            return page

        yield begin


@pytest.fixture
async def page(start: Start) -> Page:
    """A page with the usual limits."""
    return await start()


async def test_the_link_works_once(page: Page) -> None:
    link, site = f"{page.url}//evil.example/?token={page.access.token}", {"Sec-Fetch-Site": "cross-site"}
    async with page.client.get(link, headers=site) as answer:  # from another page, such as a web terminal
        assert (answer.status, answer.headers["Refresh"]) == (200, "0; url=/")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
    assert (await page.status("/"))[0] == 200
    page.client.cookie_jar.clear()
    status, text = await page.status(f"/?token={page.access.token}")
    assert (status, "used before" in text) == (401, True)


async def test_a_session_ends(page: Page) -> None:
    await page.enter()
    page.clock.advance(SESSION_SECONDS + 1)
    assert (await page.status("/"))[0] == 401


@pytest.mark.parametrize("token", ["", "wrong", "é", "x" * 3000])
async def test_a_wrong_link_is_refused(page: Page, token: str) -> None:
    status, text = await page.status(f"/?token={token}")
    assert (status, "kubeletx" in text) == (401, True)
    assert page.agent.asked == set()


async def test_an_expired_link_is_refused(page: Page) -> None:
    page.clock.advance(TOKEN_SECONDS + 1)
    status, text = await page.status(f"/?token={page.access.token}")
    assert (status, "expired" in text) == (401, True)


async def test_every_path_needs_a_session(page: Page) -> None:
    for path in ("/", "/live", "/pods/default/web", "/pods/default/web/live", "/static/ui.js", "/nothing"):
        assert (await page.status(path))[0] == 401
    assert page.agent.asked == set()


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "[::2]", "0"]
)
async def test_another_hosts_name_is_refused(page: Page, host: str) -> None:
    await page.enter()
    for name in (host, f"{host}:{page.port}"):
        assert (await page.status("/", Host=name))[0] == 421


async def test_requests_of_other_origins_are_refused(page: Page) -> None:
    await page.enter()
    for site in ("cross-site", "same-site", "anything"):
        assert (await page.status("/live", **{"Sec-Fetch-Site": site}))[0] == 403
        assert (await page.status("/live?token=x", **{"Sec-Fetch-Site": site}))[0] == 401
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{page.port + 1}"):
        assert (await page.status("/", Origin=origin))[0] == 403
    assert (await page.status("/", Origin=page.url))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(page: Page, method: str) -> None:
    await page.enter()
    assert (await page.status("/", method))[0] == 405


async def test_no_path_leads_elsewhere(page: Page) -> None:
    await page.enter()
    tricks = (
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fv1%2fconfig",
        "%2f",
        "a%00b",
        "%0d%0aX: y",
        "%ff",
        "a%3fwatch=1",
        "%252e",
        "é" * 300,
        "a" * 300 + ".js",
    )
    paths = [f"{before}{trick}{after}" for trick in tricks for before, after in (
        ("/static/", ""), ("/static/", "/access.py"), ("/pods/", "/web"), ("/pods/default/", ""), ("/pods/default/", "/screen.png"),
    )]  # fmt: skip
    for path in paths:
        answer = await page.raw(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nCookie: {page.cookie()}\r\nConnection: close\r\n\r\n".encode()
        )
        status = int(answer.split()[1])
        assert status in (200, 400, 404), path
        assert b"import" not in answer, path
    assert all(READS.fullmatch(path) for path in page.agent.asked)
    assert "/v1/config" not in page.agent.asked


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00" * 1000,
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["url", "header", "headers", "tls", "length"],
)
async def test_a_request_that_is_too_large_or_no_http_is_refused(page: Page, head: bytes) -> None:
    answer = await page.raw(head)
    assert answer == b"" or answer.split()[1] in (
        b"400",
        b"413",
        b"414",
        b"431",
    )  # or the connection is reset
    await page.enter()


async def test_connections_above_the_limit_get_a_clear_answer_and_other_addresses_are_served(
    start: Start,
) -> None:
    page = await start(most=20)
    open_ = [await asyncio.open_connection("127.0.0.1", page.port) for _ in range(10)]
    answers = await asyncio.gather(*(page.raw(REQUEST) for _ in range(200)))
    assert any(
        b"503 Service Unavailable" in answer and b"too many connections" in answer for answer in answers
    )
    assert all(answer == b"" or b"503" in answer or b"421" in answer for answer in answers)
    assert b"421" in await page.raw(REQUEST, "127.0.0.2")
    for _, writer in open_:
        writer.close()
    async with asyncio.timeout(DEADLINE):
        while b"421" not in await page.raw(REQUEST):
            pass


@pytest.mark.parametrize("half", [b"", b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
async def test_a_connection_without_a_whole_request_is_closed(start: Start, half: bytes) -> None:
    page = await start(idle_seconds=0.1)
    assert await page.raw(half) == b""


async def test_a_browser_that_does_not_read_is_disconnected(page: Page) -> None:
    await page.enter()
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port, limit=16)
    request = (
        f"GET /static/uplot.min.js HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nCookie: {page.cookie()}\r\n\r\n"
    )
    writer.write(request.encode() * 400)
    assert await reader.readexactly(12) == b"HTTP/1.1 200"
    async with asyncio.timeout(DEADLINE):
        while not writer.transport.is_closing():
            writer.write(b"\r\n")
            await page.status("/static/ui.css")


async def test_many_watchers_share_the_connections_to_the_agent(page: Page) -> None:
    await page.enter()
    requests = [page.client.get(f"{page.url}/live?since=0&q={number}") for number in range(20)]
    answers = await asyncio.gather(*requests)
    assert {answer.status for answer in answers} == {200}
    assert page.agent.most_open <= 8
    for answer in answers:
        answer.close()
    async with asyncio.timeout(DEADLINE):
        while page.pages.watchers:
            await page.status("/static/ui.css")


@pytest.mark.parametrize(
    "path", ["/", "/live?since=" + "1" * 5000, "/pods/default/web", "/pods/default/web/log", "/static/ui.js"]
)
async def test_head_has_no_body_and_ends(page: Page, path: str) -> None:
    await page.enter()
    async with asyncio.timeout(DEADLINE):
        assert await page.status(path, "HEAD") == (200, "")
    assert page.pages.watchers == 0


async def test_a_state_that_is_dropped_keeps_no_memory(page: Page) -> None:
    await page.enter()
    await page.status("/")
    state = weakref.ref(page.pages.feed.state)
    await page.pages.close()
    assert state() is None


async def test_pages_and_scripts_are_compressed_if_the_browser_can(page: Page) -> None:
    await page.enter()
    page.client.headers["Accept-Encoding"] = "identity"
    for path in ("/", "/static/htmx.min.js"):
        async with page.client.get(f"{page.url}{path}") as answer:
            assert "Content-Encoding" not in answer.headers
        async with page.client.get(f"{page.url}{path}", headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"


async def test_without_an_agent_the_page_says_so(page: Page, tmp_path: Path) -> None:
    (tmp_path / "agent.sock").unlink()
    await page.enter()
    status, text = await page.status("/")
    assert (status, "The agent does not answer" in text) == (503, True)
