"""The pages of a node and a pod over HTTP, on a fake agent's admin socket: what they show, and how changes arrive."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kubeletx_web.agent import Agent
from kubeletx_web.http import Request, serving
from kubeletx_web.pod_log import log_events
from kubeletx_web.server import Pages
from kubeletx_web.state import Feed

from kubeletx_testing.waiting import until
from plugins.web.tests.fake_agent import FakeAgent, pod

HOSTILE = '<script>alert("x")</script>\u202e\x1b[31m'
WEB = "/v1/pods/default/web"
BAD_RUNTIME = {"name": "broken", "calls": "many", "since": "yesterday", "imageService": 7}
NOW = "2026-01-01T00:00:00Z"
STORE = {"store": "s", "capacityBytes": 2, "availableBytes": 1}
RUNTIME = {"name": "r", "calls": 1, "callSeconds": 1, "abandonedCalls": {"x": 1}, "imageService": STORE}
VOLUME = {"podUid": "web", "name": "v", "state": "ready", "since": NOW, "usedBytes": 1, "message": "m"}
STEP = {"at": "2026-01-01T00:00:01Z", "action": "bind", "result": "bound", "seconds": 0.5}


class OpenAccess:
    """Lets every request pass."""

    async def check(self, request: Request) -> str:
        return ""


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
        "resources": {"limits": {"memory": "32Mi"}},
        "livenessProbe": {"httpGet": {"port": 80, "path": "/up"}, "periodSeconds": 5},
    }
    web_pod = pod("web", annotations={"note": HOSTILE, "kubeletx.io/vm-user-data": "tiger"})
    web_pod |= {"spec": {"containers": [container]}, "status": {"phase": "Pending", "message": HOSTILE}}
    agent = PodAgent()
    agent.answers |= {"/v1/pods": {"items": [web_pod]}, WEB: web_pod, f"{WEB}/history": {}}
    return agent


@pytest.fixture
async def client(agent: PodAgent, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    pages = Pages(Agent(tmp_path / "agent.sock"), OpenAccess())
    async with (
        agent.serving(tmp_path / "agent.sock"),
        serving(pages.respond, "port", "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        yield client
        await pages.close()


async def text_of(client: aiohttp.ClientSession, path: str, status: int = 200, is_part: bool = False) -> str:
    async with client.get(path, headers={"HX-Request": "true"} if is_part else None) as response:
        text = await response.text()
        assert response.status == status, text
    return text


async def test_a_pods_page_shows_its_parts_and_hostile_values_as_text(client: aiohttp.ClientSession) -> None:
    text = await text_of(client, "/pods/default/web")
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert" in text
    assert " style=" not in text  # the content security policy forbids it
    for shown in ("two\n", "memory 32Mi", "GET :80/up every 5 s"):
        assert shown in text


async def test_a_name_without_a_pod_is_not_found(client: aiohttp.ClientSession) -> None:
    assert "is not on this node" in await text_of(client, "/pods/default/none", 404)


async def test_the_yaml_has_no_values_of_variables_and_no_arguments(client: aiohttp.ClientSession) -> None:
    text = await text_of(client, "/pods/default/web/yaml")
    for hidden in ("hunter2", "swordfish", "tiger", "<script>alert"):
        assert hidden not in text
    assert "command" in text


async def test_what_cannot_be_read_is_left_out_and_the_rest_is_shown(
    client: aiohttp.ClientSession, agent: PodAgent
) -> None:
    agent.answers["/v1/pods"]["items"].append({"metadata": {"name": 7}})
    agent.answers["/v1/runtimes"] = {"items": [BAD_RUNTIME, "text"]}
    agent.answers["/v1/volumes"] = {"items": [{"podUid": 1}]}
    text = await text_of(client, "/")
    assert "default/</span>web" in text
    assert "broken" in text
    assert "Not shown: the agent gave an invalid answer to /v1/pods" in text


def broken(whole: dict[str, Any], wrong: Any) -> list[dict[str, Any]]:
    """Copies of an object, each with this value in one of its fields."""
    return [{**whole, name: wrong} for name in whole]


@pytest.mark.parametrize(
    "wrong", [None, True, -1.5, 10**400, "x", NOW[:-1], [], ["x"], [[7]], {"x": "y"}, [{"x": None}]]
)
async def test_a_wrong_value_spoils_no_page(
    client: aiohttp.ClientSession, agent: PodAgent, wrong: Any
) -> None:
    stores = [{**RUNTIME, "imageService": each} for each in broken(STORE, wrong)]
    event = {"involvedObject": {"kind": "Pod", "uid": "web"}, "reason": "Standby", "eventTime": NOW[:-1]}
    samples = {"uid": "web", "cpu": [wrong], "memory": [wrong, 1]}
    agent.answers |= {
        "/v1/runtimes": {"items": broken(RUNTIME, wrong) + stores},
        "/v1/volumes": {"items": broken(VOLUME, wrong)},
        "/v1/events": {"items": [event, *broken(event, wrong)]},
        "/v1/usage/history": {"times": [NOW, NOW], "series": [*broken(samples, wrong), samples]},
        f"{WEB}/history": {"start": {"seenAt": NOW[:-1], "runningAt": NOW, "steps": [STEP]}},
    }
    agent.files |= {"/v1/images": b'{"items":' + b"[" * 100_000}
    for path in ("/", "/?sort=cpu", "/pods/default/web"):
        await text_of(client, path)


async def test_a_page_is_live_again_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    agent, feed = FakeAgent(), Feed(Agent(tmp_path / "agent.sock"))
    async with agent.serving(tmp_path / "agent.sock"), feed.viewing() as state:
        await until(lambda: len(agent.watches) == 5)
    await until(lambda: state.problem)
    agent.answers["/v1/pods"] = {"items": [pod("new")]}
    async with agent.serving(tmp_path / "agent.sock"):
        await until(lambda: not state.problem and "new" in state.pods)
    await feed.close()


async def test_a_change_is_one_event_and_a_page_that_did_not_change_is_none(
    client: aiohttp.ClientSession, agent: PodAgent
) -> None:
    page = await text_of(client, "/pods/default/web")
    assert "older than this process" in page
    live = re.search(r'sse-connect="([^"]+)"', page)
    assert live is not None
    async with client.get(live[1]) as stream:
        await until(lambda: agent.watches.get("/v1/pods"))
        await agent.send("/v1/pods", "ADDED", pod("another"))  # is not on this page
        while "another" not in await text_of(client, "/"):
            pass
        await text_of(client, "/pods/default/web", is_part=True)
        agent.answers[f"{WEB}/history"] = {"start": {"seenAt": NOW, "steps": [STEP]}}
        await agent.send("/v1/pods", "MODIFIED", {**agent.answers[WEB], "status": {"phase": "Running"}})
        numbers = [await read_change(stream)]
        part = await text_of(client, "/pods/default/web", is_part=True)
        assert part.startswith('<div id="live"')
        assert "500 ms" in part
        assert "Runs, but the pod is not ready" in part
        agent.answers["/v1/pods"] = {"items": []}
        await agent.send("/v1/pods", "DELETED", agent.answers[WEB])
        numbers.append(await read_change(stream))
        assert numbers[1] == numbers[0] + 1
        assert "This pod is gone" in await text_of(client, "/pods/default/web", is_part=True)
    await text_of(client, "/pods/default/web", 404)


async def read_change(stream: aiohttp.ClientResponse) -> int:
    """Read server-sent events until one says that the page has changed; returns its number."""
    while (await stream.content.readline()).strip() != b"event: change":
        assert not stream.content.at_eof()
    return int((await stream.content.readline()).removeprefix(b"data: "))


async def test_many_watchers_cost_one_screenshot(client: aiohttp.ClientSession, agent: PodAgent) -> None:
    for _ in range(20):
        await text_of(client, "/pods/default/web/screen.png")
    assert agent.reads[f"{WEB}/vm/screenshot"] == 1


async def test_a_log_that_ends_says_so_after_its_lines(
    client: aiohttp.ClientSession, agent: PodAgent
) -> None:
    agent.files[f"{WEB}/log"] = HOSTILE.encode() + b"\r\n\x07bell\n"
    text = await text_of(client, "/pods/default/web/log?container=web")
    events = [line for line in text.split("\n") if line.startswith(("data", "event"))]
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
