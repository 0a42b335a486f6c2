"""Who is let in to the kubelet's API, and to what."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from kubeletx.api import Unavailable
from kubeletx.server.access.authentication import (
    ANONYMOUS,
    Authenticator,
    ReviewLimits,
    TokenReviews,
    User,
    user_of_certificate,
)
from kubeletx.server.access.authorization import AccessReviews, Authorizer
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority
from tests.unit.server.api_client import IMPATIENT, LISTEN, ReviewServer, serving

JANE = {"authenticated": True, "user": {"username": "jane", "groups": ["dev"], "extra": {"a": ["b"]}}}


class Rights(Authorizer):
    """Allows (user, verb, subresource) that are listed; remembers what was asked."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[str, str, str]] = []

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        self.asked.append((user.name, verb, subresource))
        return (user.name, verb, subresource) in self.allowed


async def test_without_credentials_every_path_answers_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for method, path in (
            ("GET", "/pods"),
            ("GET", "/nothing"),
            ("POST", "/metrics"),
            ("GET", "/exec/a/b/c"),
        ):
            assert await api.ask(method, path, certificate=None) == (401, "Unauthorized")
        for header in ("Bearer x", "Basic YTpi", "Bearer", ""):
            answer = await api.ask("GET", "/pods", certificate=None, headers={"Authorization": header})
            assert answer == (401, "Unauthorized")
    assert api.backend.calls == []


async def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path) -> None:
    stranger = CertificateAuthority(tmp_path / "other").client("admin", ["system:masters"])
    async with serving(tmp_path) as api:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await api.ask("GET", "/pods", certificate=stranger)
        assert (await api.get("/pods"))[0] == 200


async def test_a_servers_certificate_is_not_a_clients(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await api.ask("GET", "/pods", certificate=api.authority.server("admin"))


def test_name_and_groups_come_from_the_certificate() -> None:
    subject = ((("organizationName", "dev"),), (("organizationName", "ops"),), (("commonName", "jane"),))
    user = user_of_certificate({"subject": subject})
    assert user == User(name="jane", groups=("dev", "ops", "system:authenticated"))
    assert user_of_certificate({"subject": ((("organizationName", "dev"),),)}) is None
    assert user_of_certificate({}) is None
    assert user_of_certificate(None) is None


@pytest.mark.parametrize(
    ("path", "method", "wanted"),
    [
        ("/pods", "GET", [("get", "pods"), ("get", "proxy")]),
        ("/runningpods/", "GET", [("get", "pods"), ("get", "proxy")]),
        ("/healthz", "GET", [("get", "healthz"), ("get", "proxy")]),
        ("/healthz/ping", "GET", [("get", "healthz"), ("get", "proxy")]),
        ("/configz", "GET", [("get", "configz"), ("get", "proxy")]),
        ("/metrics", "GET", [("get", "metrics")]),
        ("/logs", "GET", [("get", "log")]),
        ("/logs/", "GET", [("get", "log")]),
        ("/logs/a/b", "GET", [("get", "log")]),
        ("/statusz", "GET", [("get", "statusz"), ("get", "proxy")]),
        ("/flagz", "GET", [("get", "configz"), ("get", "proxy")]),
        ("/debug/flags/v", "PUT", [("update", "proxy")]),
        ("/debug/pprof/profile", "GET", [("get", "proxy")]),
        ("/containerLogs/default/web/main", "GET", [("get", "proxy")]),
        ("/exec/default/web/main", "POST", [("create", "proxy")]),
        ("/exec/default/web/main", "GET", [("get", "proxy")]),
        ("/portForward/default/web", "POST", [("create", "proxy")]),
        ("/run/default/web/main", "POST", [("create", "proxy")]),
        ("/metrics/../exec/default/web/main", "GET", [("get", "proxy")]),
        ("/metrics%2F..%2Fexec", "DELETE", [("delete", "proxy")]),
        ("/nothing", "PUT", [("update", "proxy")]),
        ("/pods", "PATCH", [("patch", "proxy")]),
        ("/pods", "HEAD", [("", "proxy")]),
    ],
)
async def test_each_path_is_a_right_on_the_node(
    tmp_path: Path, path: str, method: str, wanted: list[tuple[str, str]]
) -> None:
    rights = Rights()
    async with serving(tmp_path, authorizer=rights) as api, api.client(api.admin) as session:
        from yarl import URL

        async with session.request(method, URL(api.url + path, encoded=True)) as answer:
            assert answer.status == 403
            if method != "HEAD":
                assert (await answer.text()).startswith("Forbidden (user=admin, verb=")
    assert rights.asked == [("admin", verb, subresource) for verb, subresource in wanted]
    assert api.backend.calls == []


async def test_the_fine_right_is_enough_and_so_is_proxy(tmp_path: Path) -> None:
    for subresource in ("pods", "proxy"):
        async with serving(tmp_path, authorizer=Rights(("admin", "get", subresource))) as api:
            assert (await api.get("/pods"))[0] == 200
            assert (await api.get("/metrics"))[0] == 403


async def test_anonymous_is_a_user_only_where_it_is_allowed_and_nothing_was_shown(tmp_path: Path) -> None:
    rights = Rights((ANONYMOUS.name, "get", "healthz"))
    open_ = Authenticator(tokens=None, anonymous=True)
    async with serving(tmp_path, authorizer=rights, authenticator=open_) as api:
        assert await api.ask("GET", "/healthz", certificate=None) == (200, "ok")
        assert (await api.ask("GET", "/pods", certificate=None))[0] == 403
        wrong = {"Authorization": "Bearer wrong"}
        assert (await api.ask("GET", "/healthz", certificate=None, headers=wrong))[0] == 401


async def test_a_token_is_reviewed_once_in_its_time_and_is_never_logged(tmp_path: Path) -> None:
    clock, reviews = FakeClock(), ReviewServer()
    reviews.answer = JANE
    with capture_logs() as logs:
        async with reviews.client(clock) as client:
            tokens = TokenReviews(client, clock=clock, keep_seconds=120)
            rights = Rights(("jane", "get", "metrics"))
            door = Authenticator(tokens=tokens, anonymous=False)
            async with serving(tmp_path, authorizer=rights, authenticator=door) as api:
                header = {"Authorization": "bearer s3cret-token"}
                for _ in range(3):
                    assert (await api.ask("GET", "/metrics", certificate=None, headers=header))[0] == 200
                assert [one["spec"] for one in reviews.asked] == [{"token": "s3cret-token"}]
                assert (await api.ask("GET", "/pods", certificate=None, headers=header))[0] == 403
                clock.advance(121)
                reviews.answer = {"authenticated": False}
                assert (await api.ask("GET", "/metrics", certificate=None, headers=header))[0] == 401
                reviews.code = 500
                other = {"Authorization": "Bearer 0ther-token"}
                assert (await api.ask("GET", "/metrics", certificate=None, headers=other))[0] == 401
                reviews.code, reviews.answer = 201, JANE  # a failure is not remembered
                assert (await api.ask("GET", "/metrics", certificate=None, headers=other))[0] == 200
    assert any(entry["event"] == "Failed to review a token" for entry in logs)
    assert "s3cret" not in repr(logs)
    assert "0ther" not in repr(logs)


async def test_no_one_waits_behind_many_strangers_for_longer_than_a_review_may_take() -> None:
    clock, reviews = FakeClock(), ReviewServer()
    jane, limits = User(name="jane"), ReviewLimits(parallel=0, seconds=0.1)
    async with reviews.client(clock) as client, asyncio.timeout(60):
        tokens = TokenReviews(client, clock=clock, keep_seconds=120, limits=limits)
        rights = AccessReviews(
            client, node_name="node-1", clock=clock, allow_seconds=300, deny_seconds=30, limits=limits
        )
        assert await tokens.user_of("t0ken") is None
        with pytest.raises(Unavailable, match="no answer in time"):
            await rights.allows(jane, "get", "proxy")
        assert reviews.asked == []


async def test_a_decision_is_asked_for_and_remembered_for_its_time() -> None:
    clock, reviews = FakeClock(), ReviewServer()
    user = User(name="jane", uid="7", groups=("dev",), extra=(("a", ("b",)),))
    async with reviews.client(clock) as client:
        rights = AccessReviews(client, node_name="node-1", clock=clock, allow_seconds=300, deny_seconds=30)
        reviews.answer = {"allowed": False}
        assert not await rights.allows(user, "get", "proxy")
        reviews.answer = {"allowed": True}
        assert not await rights.allows(user, "get", "proxy")
        clock.advance(31)
        assert await rights.allows(user, "get", "proxy")
        reviews.answer = {"allowed": False}
        clock.advance(299)
        assert await rights.allows(user, "get", "proxy")
        assert not await rights.allows(user, "create", "proxy")
        clock.advance(2)
        assert not await rights.allows(user, "get", "proxy")
        assert reviews.asked[0]["spec"] == {
            "user": "jane",
            "uid": "7",
            "groups": ["dev"],
            "extra": {"a": ["b"]},
            "resourceAttributes": {
                "verb": "get",
                "version": "v1",
                "resource": "nodes",
                "subresource": "proxy",
                "name": "node-1",
            },
        }
        reviews.code = 503
        with pytest.raises(Unavailable, match="gave no decision"):
            await rights.allows(user, "get", "metrics")


async def test_no_decision_is_an_error_and_no_permission(tmp_path: Path) -> None:
    class Silent(Authorizer):
        async def allows(self, user: User, verb: str, subresource: str) -> bool:
            raise Unavailable("no API server")

    async with serving(tmp_path, authorizer=Silent()) as api:
        code, text = await api.get("/pods")
        assert (code, "no API server" in text) == (500, False)


async def test_heads_that_are_too_large_are_refused_and_their_words_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as api:
        assert (await api.get("/pods?" + "x" * 100_000))[0] == 200  # as long as a command may be
        assert (await api.get("/pods?" + "x" * 300_000))[0] == 400
        assert (await api.get("/pods", headers={"Authorization": "Bearer " + "s3cret" * 9000}))[0] == 400
        assert (await api.get("/pods", headers={f"X-{n}": "x" for n in range(200)}))[0] == 400
    assert "s3cret" not in caplog.text


async def test_clients_that_send_half_a_head_are_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, listen=IMPATIENT) as api, asyncio.timeout(60):
        for head in (b"", b"GET /pods HTTP/1.1\r\nHost: a\r\nX-Slow: "):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", api.server.port, ssl=api.tls(api.admin)
            )
            writer.write(head)
            assert await reader.read() == b""
            writer.close()


async def test_debugging_handlers_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, listen=msgspec.structs.replace(LISTEN, debugging_handlers=False)) as api:
        for path in ("/containerLogs/default/web/main", "/runningpods/", "/exec/default/web/main"):
            assert await api.get(path) == (405, "Debug endpoints are disabled.")
        assert (await api.get("/pods"))[0] == 200
        assert (await api.get("/healthz"))[0] == 200
