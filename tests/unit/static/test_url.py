from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kubeletx.api import InvalidConfig
from kubeletx.static.manifest import ManifestReader
from kubeletx.static.url import UrlSource, shown_url
from kubeletx.testing.clock import FakeClock
from tests.unit.static.recording_sink import RecordingSink

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %s}]}\n"


class Server:
    """Answers with `status` and `body`, and keeps the requests' headers."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.requests: list[web.BaseRequest] = []
        self.hang = False
        self.interim = 0
        self.redirect = False
        self.closed = asyncio.Event()
        """Set when the server stops; a request that hangs waits for it."""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.requests.append(request)
        if self.hang:
            await self.closed.wait()
        if self.redirect:
            return web.Response(status=302, headers={"Location": "/pods"})
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * self.interim)  # type: ignore[attr-defined]
        return web.Response(status=self.status, body=self.body)


class Running:
    def __init__(self, server: Server, sink: RecordingSink, clock: FakeClock) -> None:
        self.server, self.sink, self.clock = server, sink, clock

    async def ask(self) -> None:
        """Let the source ask once more, and wait until it sleeps again."""
        asked = len(self.server.requests)
        self.clock.advance(20)
        await self.idle(asked + 1)

    async def idle(self, asked: int) -> None:
        async with asyncio.timeout(60):
            while len(self.server.requests) < asked or not self.clock.sleepers:
                await asyncio.sleep(0)


@asynccontextmanager
async def running(
    server: Server, timeout_seconds: float = 10, has_earlier_pods: bool = False
) -> AsyncIterator[Running]:
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    it = Running(server, RecordingSink(), FakeClock())
    source = UrlSource(
        url=f"http://user:secret@127.0.0.1:{port}/pods",
        headers={"Metadata-Flavor": ("x", "y")},
        sink=it.sink,
        reader=ManifestReader(node_name="n1"),
        clock=it.clock,
        timeout_seconds=timeout_seconds,
        has_earlier_pods=lambda: has_earlier_pods,
    )
    task = asyncio.create_task(source.run(), name="url-source")
    try:
        await it.idle(1)
        yield it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.closed.set()
        await runner.cleanup()


async def test_pods_come_from_the_url_with_the_headers_that_were_given() -> None:
    server = Server()
    server.body = (POD % ("web", "app:1")).encode()
    async with running(server) as it:
        assert it.sink.calls == ["update web-n1", "synced"]
        (pod,) = it.sink.pods.values()
        assert pod.metadata.annotations["kubernetes.io/config.source"] == "http"
        assert pod.spec.tolerations == ()
        assert server.requests[0].headers.getall("Metadata-Flavor") == ["x", "y"]
        await it.ask()
        assert it.sink.calls == ["update web-n1", "synced"]


async def test_a_pod_list_is_a_set() -> None:
    server = Server()
    server.body = b"""{"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}]}"""
    async with running(server) as it:
        assert it.sink.names == ["a-n1", "b-n1"]
        server.body = (POD % ("b", "i:2")).encode()
        await it.ask()
        assert it.sink.names == ["b-n1"]
        assert it.sink.calls[3:] == ["remove a-n1", "remove b-n1", "update b-n1"]
        server.body = b'{"apiVersion": "v1", "kind": "PodList", "items": []}'
        await it.ask()
        assert it.sink.names == []


async def test_redirects_and_interim_answers_without_end_are_an_outage_with_a_reason() -> None:
    server = Server()
    server.body = (POD % ("web", "app:1")).encode()
    server.interim = 5
    async with running(server) as it:
        assert it.sink.names == ["web-n1"]
        reasons = []
        for interim, redirect in ((6, False), (0, True)):
            server.interim, server.redirect = interim, redirect
            with capture_logs() as logs:
                await it.ask()
            reasons.append(logs[0]["err"])
            server.interim, server.redirect = 0, False
            await it.ask()
        assert reasons == [
            "too many 1xx informational responses",
            "the answer is a redirect, 10 times in a row",
        ]


@pytest.mark.parametrize("status", [204, 301, 404, 500])
async def test_an_outage_keeps_the_pods_with_one_warning(status: int) -> None:
    server = Server()
    server.body = (POD % ("web", "app:1")).encode()
    async with running(server) as it:
        with capture_logs() as logs:
            server.status, server.body = status, b""
            await it.ask()
            await it.ask()
            server.status, server.body = 200, (POD % ("web", "app:1")).encode()
            await it.ask()
        assert [line["event"] for line in logs] == [
            "Kept the pods of the manifest URL",
            "Manifest URL answered again",
        ]
        assert "secret" not in str(logs)
        assert it.sink.calls == ["update web-n1", "synced"]


async def test_a_source_that_never_answered_is_not_synced() -> None:
    server = Server()
    server.status = 503
    async with running(server) as it:
        assert it.sink.calls == []
        server.status = 200
        await it.ask()
        assert it.sink.calls == ["synced"]


GARBAGE = [b"<html>Sign in</html>", b"{}", b"kind: [", b"\xff\xfe", b'{"kind": "Pod", "apiVersion": "v1"}']


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_first_answer_that_is_not_a_manifest_does_not_make_the_source_synced(garbage: bytes) -> None:
    server = Server()
    server.body = garbage
    async with running(server) as it:
        assert it.sink.calls == ["invalid pods"]
        await it.ask()
        assert it.sink.calls == ["invalid pods"], "the same bytes again are no better"
        server.body = (POD % ("web", "app:1")).encode()
        await it.ask()
        assert it.sink.calls == ["invalid pods", "update web-n1", "valid pods", "synced"]


async def test_an_empty_first_answer_keeps_the_pods_of_an_earlier_life() -> None:
    server = Server()
    async with running(server, has_earlier_pods=True) as it:
        assert it.sink.calls == []
        server.body = b'{"apiVersion": "v1", "kind": "PodList", "items": []}'
        await it.ask()
        assert it.sink.calls == ["synced"]


async def test_an_empty_answer_later_removes_nothing() -> None:
    server = Server()
    server.body = (POD % ("web", "app:1")).encode()
    async with running(server) as it:
        server.body = b""
        await it.ask()
        assert it.sink.names == ["web-n1"]


async def test_an_invalid_answer_keeps_the_pods_and_shows_the_error() -> None:
    server = Server()
    server.body = (POD % ("web", "app:1")).encode()
    async with running(server) as it:
        server.body = (POD % ("web", "'a b'")).encode()
        await it.ask()
        assert it.sink.names == ["web-n1"]
        ((origin, (text, uid)),) = it.sink.errors.items()
        assert "secret" not in origin
        assert uid in it.sink.pods
        assert "spec.containers[0].image: 'a b' holds white space" in text
        server.body = (POD % ("web", "app:1")).encode()
        await it.ask()
        assert it.sink.errors == {}


async def test_a_server_that_hangs_is_given_up_on() -> None:
    server = Server()
    server.hang = True
    with capture_logs() as logs:
        async with running(server, timeout_seconds=0.05):
            pass
    assert [line["err"] for line in logs] == ["no answer within 0.05 s"]


async def test_an_answer_over_ten_megabytes_is_refused() -> None:
    server = Server()
    server.body = b"#" * (11 * 1024 * 1024)
    with capture_logs() as logs:
        async with running(server) as it:
            assert it.sink.calls == []
    assert "split it into several files" in logs[0]["err"]


@pytest.mark.parametrize("url", ["", "web", "ftp://host/x", "http://", "http://[::1", "file:///etc/x"])
def test_an_address_that_is_not_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="--manifest-url"):
        shown_url(url)
