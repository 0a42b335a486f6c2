"""The page for users of a cluster has the TLS, users and rights of the kubelet's API; over real connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner
from kubeletx_web.access import HEADERS
from kubeletx_web.agent import Agent
from kubeletx_web.cluster import FILES, KEPT_SECONDS, ClusterAccess, ClusterTls
from kubeletx_web.http import MAX_CONNECTIONS, serving
from kubeletx_web.main import main
from kubeletx_web.server import Pages
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.server.access.authentication import Authenticator, TokenReviews, User
from kubeletx.server.access.authorization import Authorizer
from kubeletx.server.access.remote import KubeletAccess
from kubeletx.server.access.self_signed import Pair, make_pair
from kubeletx.server.access.tls import TlsPlan
from kubeletx.server.admin.socket import AdminServer
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.https_session import https_session
from tests.unit.server.api_client import ReviewServer
from tests.unit.server.fake_admin import FakeAdminBackend

FORBIDDEN = "Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[proxy])"


class OnlyJane(Authorizer):
    """Allows jane, and counts the decisions."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = {"jane"}

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        self.asked += 1
        assert (verb, subresource) == ("get", "proxy")
        return user.name in self.allowed


class ClusterPage:
    """A page for a cluster in front of an agent with a kubelet API."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority(directory)
        self.pair = Pair(directory / "tls.crt", directory / "tls.key")
        self.renew()
        self.clock, self.reviews, self.rights = FakeClock(), ReviewServer(), OnlyJane()
        self.agent = Agent(directory / "agent.sock", timeout_seconds=30)
        self.port = 0
        self.admin: AdminServer | None = None

    def renew(self) -> bytes:
        """Write a new certificate of the server, and return it."""
        certificate, key = make_pair("node-1", ("127.0.0.1",), FakeClock().now())
        self.pair.certificate.write_bytes(certificate)
        self.pair.key.write_bytes(key)
        return certificate

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self.reviews.client(self.clock) as client, asyncio.timeout(120):
            access = KubeletAccess(
                plan=TlsPlan(min_version="VersionTLS13", client_ca=self.authority.ca_file),
                pair=lambda: self.pair,
                authenticator=Authenticator(
                    tokens=TokenReviews(client, clock=self.clock, keep_seconds=0), anonymous=False
                ),
                authorizer=self.rights,
            )
            backend = replace(FakeAdminBackend().parts, access=access)
            self.admin = AdminServer(backend=backend, socket_path=self.agent.socket_path)
            await self.admin.start()
            pages = Pages(self.agent, ClusterAccess(self.agent, self.clock))
            tls = ClusterTls(await self.agent.get(FILES, dict))
            async with serving(pages.respond, "web-address", "127.0.0.1", 0, tls=tls.context) as self.port:
                yield
            await pages.close()
            await self.admin.stop()

    async def get(
        self, user: str = "", path: str = "/", method: str = "GET", **headers: str
    ) -> tuple[int, str]:
        """Status and text of an answer. `user`: of the client certificate; empty: without one."""
        async with (
            https_session(self.context(user)) as session,
            session.request(method, f"https://127.0.0.1:{self.port}{path}", headers=headers) as answer,
        ):
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
            return answer.status, await answer.text()

    def context(self, user: str) -> ssl.SSLContext:
        """TLS of a client."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if user:
            pair = self.authority.client(user, ["dev"])
            context.load_cert_chain(pair.cert_file, pair.key_file)
        return context


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[ClusterPage]:
    page = ClusterPage(tmp_path)
    async with page.serving():
        yield page


async def test_a_user_with_a_certificate_and_the_right_sees_the_page(page: ClusterPage) -> None:
    status, text = await page.get("jane")
    assert status == 200
    assert "Runtimes" in text
    assert (await page.get("jane", "/static/ui.css"))[0] == 200
    assert (await page.get("jane", method="POST"))[0] == 405


async def test_without_credentials_or_without_the_right_no_path_is_shown(page: ClusterPage) -> None:
    for path in ("/", "/live", "/static/ui.css", "/nothing", "/pods/a/b/log"):
        status, text = await page.get(path=path)
        assert (status, "Unauthorized" in text) == (401, True)
        status, text = await page.get("joe", path)
        assert (status, FORBIDDEN in text) == (403, True)


async def test_a_token_is_reviewed_and_its_decision_kept_for_ten_seconds(page: ClusterPage) -> None:
    token = {"Authorization": "Bearer t0ken"}
    page.reviews.answer = {"authenticated": False}
    assert (await page.get(**token))[0] == 401
    page.reviews.answer = {"authenticated": True, "user": {"username": "joe"}}
    assert (await page.get(**token))[0] == 401
    page.clock.advance(KEPT_SECONDS + 1)
    assert (await page.get(**token))[0] == 403
    page.rights.allowed.add("joe")
    page.clock.advance(KEPT_SECONDS + 1)
    asked = len(page.reviews.asked)
    for _ in range(3):
        assert (await page.get(**token))[0] == 200
    assert len(page.reviews.asked) == asked + 1
    assert (await page.get(Authorization="Bearer other"))[0] == 200
    assert len(page.reviews.asked) == asked + 2
    page.rights.allowed.remove("joe")
    page.clock.advance(KEPT_SECONDS + 1)
    assert (await page.get(**token))[0] == 403


async def test_another_page_reads_nothing_with_the_certificate_of_a_browser(page: ClusterPage) -> None:
    site = {"Sec-Fetch-Site": "cross-site"}
    assert (await page.get("jane", **site, **{"Sec-Fetch-Mode": "cors"}))[0] == 403
    assert (await page.get("jane", **site, **{"Sec-Fetch-Mode": "navigate"}))[0] == 200


async def test_a_certificate_of_another_authority_and_an_old_tls_end_the_handshake(
    page: ClusterPage, tmp_path: Path
) -> None:
    own = page.authority
    page.authority = CertificateAuthority(tmp_path / "other")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await page.get("jane")
    page.authority = own
    old = page.context("jane")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", page.port, ssl=old)


async def test_without_an_agent_access_ends(page: ClusterPage) -> None:
    assert (await page.get("jane"))[0] == 200
    assert page.admin is not None
    await page.admin.stop()
    page.clock.advance(KEPT_SECONDS + 1)
    status, text = await page.get("jane")
    assert (status, "no agent answers" in text) == (503, True)


async def test_a_new_certificate_is_used_and_a_broken_one_is_not(page: ClusterPage) -> None:
    async def shown() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", page.port, ssl=page.context("jane"))
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        return ssl.DER_cert_to_PEM_cert(certificate)

    old = await shown()
    new = page.renew().decode()
    assert await shown() == new != old
    page.pair.certificate.write_text("half")
    assert await shown() == new
    found = await page.agent.get(FILES, dict)
    for wrong in ({}, {"certificateFile": 7}, {"keyFile": "\0"}, {"ciphers": 7}):
        with pytest.raises(InvalidConfig, match="correct the certificates"):
            ClusterTls({**found, **wrong})


async def test_handshakes_that_do_not_end_take_only_the_connections_of_their_address(
    page: ClusterPage,
) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", page.port) for _ in range(MAX_CONNECTIONS)]
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", page.port, ssl=page.context("jane"))
    other = await asyncio.open_connection(
        "127.0.0.1", page.port, ssl=page.context("jane"), local_addr=("127.0.0.2", 0)
    )
    for _, writer in (*silent, other):
        writer.close()
        with suppress(ConnectionError):  # it was refused
            await writer.wait_closed()


async def test_an_agent_without_a_kubelet_api_is_refused_with_words(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    admin = AdminServer(backend=FakeAdminBackend().parts, socket_path=agent.socket_path)
    await admin.start()
    try:
        with pytest.raises(NotFound, match="does not serve the kubelet's API"):
            await agent.get(FILES, dict)
    finally:
        await admin.stop()


@pytest.mark.parametrize(
    ("address", "words"),
    [("10260", "is not ADDR:PORT"), ("a:b", "is not ADDR:PORT"), ("127.0.0.1:0", "no agent answers")],
)
def test_a_bad_address_and_a_missing_agent_are_named(tmp_path: Path, address: str, words: str) -> None:
    result = CliRunner().invoke(main, ["--socket", str(tmp_path / "none"), "--web-address", address])
    assert result.exit_code in (1, 2)
    assert words in result.output
