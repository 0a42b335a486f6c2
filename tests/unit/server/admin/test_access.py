"""Programs of the node ask the agent who may read, with the rules of the kubelet's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from msgspec.structs import replace

from kubeletx.api import Unavailable
from kubeletx.server.access.authentication import Authenticator, TokenReviews, User
from kubeletx.server.access.authorization import Authorizer
from kubeletx.server.access.remote import KubeletAccess
from kubeletx.server.access.self_signed import Pair
from kubeletx.server.access.tls import TlsPlan
from kubeletx.server.admin.socket import AdminServer
from kubeletx.testing import FakeClock
from tests.unit.server.api_client import ReviewServer
from tests.unit.server.fake_admin import FakeAdminBackend

JANE = [[["organizationName", "dev"]], [["commonName", "jane"]]]
JOE = [[["commonName", "joe"]]]
FORBIDDEN = "Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[proxy])"


class OnlyJane(Authorizer):
    """Allows what jane of the group dev reads; gives no decision about sick."""

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        if user.name == "sick":
            raise Unavailable("the API server does not answer")
        return (user.name, verb, subresource) == ("jane", "get", "proxy")


@asynccontextmanager
async def asking(directory: Path, access: KubeletAccess | None) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the admin socket."""
    socket_path = directory / "kubeletx.sock"
    server = AdminServer(backend=replace(FakeAdminBackend().parts, access=access), socket_path=socket_path)
    await server.start()
    connector = aiohttp.UnixConnector(path=str(socket_path))
    async with aiohttp.ClientSession(connector=connector, base_url="http://kubeletx") as session:
        yield session
    await server.stop()


async def test_credentials_are_decided_as_by_the_kubelet_api(tmp_path: Path) -> None:
    clock, reviews = FakeClock(), ReviewServer()
    async with reviews.client(clock) as client:
        access = KubeletAccess(
            plan=TlsPlan(ciphers=("TLS_RSA_WITH_AES_128_GCM_SHA256",), client_ca=tmp_path / "ca"),
            pair=lambda: Pair(tmp_path / "crt", tmp_path / "key"),
            authenticator=Authenticator(
                tokens=TokenReviews(client, clock=clock, keep_seconds=0), anonymous=False
            ),
            authorizer=OnlyJane(),
        )
        async with asking(tmp_path, access) as session:

            async def decide(**asked: Any) -> tuple[int, str, str]:
                async with session.post("/v1/access", json=asked) as answer:
                    assert answer.status == 200
                    found = await answer.json()
                assert found["allowed"] == (found["status"] == 200)
                return found["status"], found["user"], found["message"]

            assert await decide() == (401, "", "Unauthorized")
            assert await decide(subject=JANE) == (200, "jane", "")
            assert await decide(subject=JOE) == (403, "joe", FORBIDDEN)
            reviews.answer = {"authenticated": False}
            assert await decide(authorization="Bearer bad") == (401, "", "Unauthorized")
            reviews.answer = {"authenticated": True, "user": {"username": "jane"}}
            assert await decide(authorization="Bearer good") == (200, "jane", "")
            assert await decide(authorization="Basic good") == (401, "", "Unauthorized")
            reviews.answer = {"authenticated": True, "user": {"username": "sick"}}
            assert (await decide(authorization="Bearer good"))[:2] == (500, "sick")
            async with session.post("/v1/access", json={"subject": "jane"}) as answer:
                assert answer.status == 400
            async with session.get("/v1/access") as answer:
                assert await answer.json() == {
                    "certificateFile": str(tmp_path / "crt"),
                    "keyFile": str(tmp_path / "key"),
                    "clientCaFile": str(tmp_path / "ca"),
                    "minVersion": "VersionTLS12",
                    "ciphers": "AES128-GCM-SHA256",
                }


async def test_without_a_kubelet_api_no_user_has_access(tmp_path: Path) -> None:
    async with asking(tmp_path, None) as session:
        for method in ("GET", "POST"):
            async with session.request(method, "/v1/access", json={"subject": JANE}) as answer:
                assert answer.status == 404
                assert "does not serve the kubelet's API" in await answer.text()
