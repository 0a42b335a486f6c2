"""Tests of the page of one pod, on a fake agent's admin socket."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from kubeletx_web.agent import Agent
from kubeletx_web.pod_log import log_events
from kubeletx_web.server import Pages

from kubeletx_testing.waiting import until
from plugins.web.tests.fake_agent import FakeAgent, pod

HOSTILE = '<script>alert("x")</script>\u202e\x1b[31m'
WEB = "/v1/pods/default/web"


class OpenAccess:
    """Lets every request pass."""

    async def check(self, request: web.Request) -> str | None:
        return None


class PodAgent(FakeAgent):
    """A `FakeAgent` with `files`: bytes by path. `reads`: numbers of requests for them."""

    def __init__(self) -> None:
        super().__init__()
        self.files = {f"{WEB}/log": b"one\ntwo\n", f"{WEB}/vm/screenshot": b"PNG"}
        self.reads: Counter[str] = Counter()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path not in self.files:
            return await super()._answer(request)
        self.reads[request.path] += 1
        return web.Response(body=self.files[request.path])


@pytest.fixture
def agent() -> PodAgent:
    container = {
        "name": "main",
        "image": HOSTILE,
        "command": [HOSTILE],
        "args": ["--token=swordfish"],
        "env": [{"name": HOSTILE, "value": "hunter2"}],
    }
    web_pod = pod("web", annotations={"note": HOSTILE, "kubeletx.io/vm-user-data": "tiger"})
    web_pod |= {"spec": {"containers": [container]}, "status": {"phase": "Pending", "message": HOSTILE}}
    agent = PodAgent()
    agent.answers |= {
        "/v1/pods": {"items": [web_pod]},
        WEB: web_pod,
        f"{WEB}/history": {},
    }
    return agent


@pytest.fixture
async def client(agent: PodAgent, tmp_path: Path) -> AsyncIterator[TestClient[Any, Any]]:
    socket = tmp_path / "agent.sock"
    async with (
        agent.serving(socket),
        TestClient(TestServer(Pages(Agent(socket), OpenAccess()).app())) as client,
    ):
        yield client


async def text_of(client: TestClient[Any, Any], path: str, status: int = 200) -> str:
    async with client.get(path) as response:
        text: str = await response.text()
        assert response.status == status, text
    return text


async def read_until(stream: ClientResponse, text: str) -> str:
    """Read server-sent events until one has the text."""
    read = ""
    while text not in read:
        piece = await stream.content.readany()
        assert piece, read
        read += piece.decode()
    return read


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
    assert "tiger" not in text
    assert "<script>alert" not in text
    assert "command" in text


async def test_twenty_watchers_cost_one_screenshot(client: TestClient[Any, Any], agent: PodAgent) -> None:
    for _ in range(20):
        await text_of(client, "/pods/default/web/screen.png")
    assert agent.reads[f"{WEB}/vm/screenshot"] == 1


async def test_a_log_that_ends_says_so_after_its_lines(client: TestClient[Any, Any], agent: PodAgent) -> None:
    agent.files[f"{WEB}/log"] = HOSTILE.encode() + b"\r\n\x07bell\n"
    text = await text_of(client, "/pods/default/web/log?container=web")
    events = [line for line in text.splitlines() if line.startswith(("data", "event"))]
    assert json.loads(events[0].removeprefix("data: ")) == [
        '<script>alert("x")</script>\\u202e',
        "\u2407bell",
    ]
    assert events[1:] == ["event: end", 'data: ""']


async def test_a_browser_that_does_not_read_a_log_stops_the_reading_of_it(tmp_path: Path) -> None:
    class EndlessLog(Agent):
        pieces = 0
        is_closed = False

        async def chunks(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    self.pieces += 1
                    yield b"x" * 70_000  # no end of a line
            finally:
                self.is_closed = True

    agent = EndlessLog(tmp_path / "socket")
    messages = log_events(agent, f"{WEB}/log", "main", pause_seconds=0)
    sizes = [len(await anext(messages)) for _ in range(4)]
    await messages.aclose()
    assert agent.pieces == 3  # the first message is a comment
    assert max(sizes) < 80_000
    assert agent.is_closed


async def test_a_pod_that_changes_and_is_deleted_while_it_is_watched_says_so(
    client: TestClient[Any, Any], agent: PodAgent
) -> None:
    page = await text_of(client, "/pods/default/web")
    assert "older than this process" in page
    live = re.search(r'sse-connect="([^"]+)"', page)
    assert live is not None
    step = {"at": "2026-01-01T00:00:01Z", "action": "bind", "result": "bound", "seconds": 0.5}
    agent.answers[f"{WEB}/history"] = {"start": {"seenAt": "2026-01-01T00:00:00Z", "steps": [step]}}
    async with client.get(live[1]) as stream:
        await until(lambda: agent.watches.get("/v1/pods"))
        await agent.send("/v1/pods", "MODIFIED", {**agent.answers[WEB], "status": {"phase": "Running"}})
        changed = await read_until(stream, "500 ms")
        assert "Runs, but the pod is not ready" in changed
        agent.answers["/v1/pods"] = {"items": []}
        await agent.send("/v1/pods", "DELETED", agent.answers[WEB])
        assert "event: reload" not in await read_until(stream, "This pod is gone")
    await text_of(client, "/pods/default/web", 404)
