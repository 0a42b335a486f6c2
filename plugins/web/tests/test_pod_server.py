"""Tests of the page of one pod, on a fake agent's admin socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from kubeletx_web.agent import Agent
from kubeletx_web.server import Pages

HOSTILE = '<script>alert("x")</script>\u202e\x1b[31m'
LISTS = ("pods", "runtimes", "events", "volumes", "images", "sessions", "plugins", "panels")


class OpenAccess:
    """Lets every request pass."""

    def check(self, request: web.Request) -> str | None:
        return None


class FakeAgent:
    """An admin socket with one pod. `log`: pieces of its log. `screenshots`: number of pictures that were asked for."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = [pod()]
        self.answers: dict[str, Any] = {"/v1/sessions": {"items": [session()]}}
        self.log = b"one\ntwo\n"
        self.screenshots = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            return response
        if path.endswith("/log"):
            return web.Response(body=self.log)
        if path.endswith("/vm/screenshot"):
            self.screenshots += 1
            return web.Response(body=b"PNG")
        if path == "/v1/pods":
            return web.json_response({"items": self.pods})
        if path == "/v1/pods/default/web":
            return web.json_response(self.pods[0])
        if path in self.answers:
            return web.json_response(self.answers[path])
        if path.removeprefix("/v1/") in LISTS:
            return web.json_response({"items": []})
        return web.json_response({})


def pod(**status: Any) -> dict[str, Any]:
    container = {
        "name": "web",
        "image": HOSTILE,
        "command": [HOSTILE],
        "args": ["--token=swordfish"],
        "env": [{"name": HOSTILE, "value": "hunter2"}],
    }
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "annotations": {"note": HOSTILE}},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending", "message": HOSTILE, **status},
    }


def session() -> dict[str, Any]:
    return {
        "namespace": "default",
        "name": "s1",
        "pod": "default/web",
        "state": "open",
        "application": HOSTILE,
        "createdAt": "2026-01-01T00:00:00Z",
    }


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
async def client(agent: FakeAgent, tmp_path: Path) -> AsyncIterator[TestClient[Any, Any]]:
    runner = web.AppRunner(agent.app(), shutdown_timeout=0.1)
    await runner.setup()
    socket = tmp_path / "agent.sock"
    await web.UnixSite(runner, str(socket)).start()
    app = Pages(Agent(socket), OpenAccess()).app()
    try:
        async with TestClient(TestServer(app)) as client:
            yield client
    finally:
        await runner.cleanup()


async def text_of(client: TestClient[Any, Any], path: str, status: int = 200) -> str:
    async with client.get(path) as response:
        text: str = await response.text()
        assert response.status == status, text
    return text


async def test_the_page_shows_hostile_values_as_text(client: TestClient[Any, Any]) -> None:
    text = await text_of(client, "/pods/default/web")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert " style=" not in text  # the content security policy forbids it
    assert "two\n" in text


async def test_a_name_without_a_pod_is_not_found(client: TestClient[Any, Any]) -> None:
    assert "is not on this node" in await text_of(client, "/pods/default/none", 404)


async def test_the_yaml_has_no_values_of_variables_and_no_arguments(client: TestClient[Any, Any]) -> None:
    text = await text_of(client, "/pods/default/web/yaml")
    assert "hunter2" not in text
    assert "swordfish" not in text
    assert "<script>alert" not in text
    assert "command" in text


async def test_twenty_watchers_cost_one_screenshot(client: TestClient[Any, Any], agent: FakeAgent) -> None:
    for _ in range(20):
        await text_of(client, "/pods/default/web/screen.png")
    assert agent.screenshots == 1


async def test_a_log_that_ends_says_so_after_its_lines(
    client: TestClient[Any, Any], agent: FakeAgent
) -> None:
    agent.log = HOSTILE.encode() + b"\r\n\x07bell\n"
    text = await text_of(client, "/pods/default/web/log?container=web")
    events = [line for line in text.splitlines() if line.startswith(("data", "event"))]
    assert json.loads(events[0].removeprefix("data: ")) == [
        '<script>alert("x")</script>\\u202e',
        "\u2407bell",
    ]
    assert events[1:] == ["event: end", 'data: ""']
