"""Sections of the node's page: what they show, and that a slow answer delays nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from kubeletx_web.agent import Agent
from kubeletx_web.sections import sections, sessions_of
from kubeletx_web.state import Feed, NodeState, Silence

from kubeletx.kube.types.core import Pod
from plugins.web.tests.fake_agent import FakeAgent

NOW = "2026-01-01T12:00:00Z"
MEBIBYTE = 1024 * 1024
CHECKS = [
    {"Name": "disk", "Level": "required", "Ok": False, "Message": "2% free"},
    {"Name": "net", "Level": "wanted", "Ok": None},
]
HEALTH = {"RemainingTestTime": 480, "HeldBy": "no controller", "IsHealthy": False, "Checks": CHECKS}
EDGE = {
    "health": HEALTH,
    "node": {"CurPart": "IMGA", "RebootReason": "WatchdogHung: camera", "RebootTime": "at noon"},
    "slots": [{"PartitionLabel": "IMGA", "PartitionState": "active", "ShortVersion": "1"}],
}
BOOTS = [{"reason": f"reason {n}", "time": NOW, "image": f"v{n}"} for n in range(2)]
NODE = {
    "metadata": {"name": "n1", "annotations": {"remedy.kubeletx.io/set": "cordon", "other": "x"}},
    "spec": {
        "taints": [
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
            {"key": "dedicated", "effect": "NoSchedule"},
        ]
    },
}
SESSION = {
    **{"namespace": "shop", "name": "ann", "pod": "shop/cart", "state": "Available", "createdAt": NOW},
    **{"clients": [{"name": "a"}, {"name": "b"}], "silent": True, "origin": "fornax"},
}
CORE = {"address": "10.0.0.1:18001", "role": "primary", "connected": True, "registered": True}
CORES = [{**CORE, "acknowledged": 41, "sent": {"POD_STATE": 5}}, {"address": "two", "problem": "refused"}]
IMAGES = [
    {"ref": "small", "runtimes": ["a"], "sizeBytes": MEBIBYTE},
    {"ref": "id", "tags": ["big"], "runtimes": ["a"], "sizeBytes": 20 * MEBIBYTE},
    {"ref": "other", "runtimes": ["b"], "usedBy": [f"shop/p{n}" for n in range(5)]},
]
PLUGIN = {
    **{"name": "rack", "version": "1.2", "state": "degraded"},
    "processes": [{"pid": 71, "memoryBytes": 31 * MEBIBYTE, "cpuSeconds": 1.25, "restarts": 2}],
    "registrations": [
        {"name": "ups", "hook": "health-check", "state": "degraded", "reason": "no answer"},
        {"name": "fine", "hook": "panel", "state": "ready"},
        {"name": "hung", "hook": "panel", "state": "ready", "abandonedCalls": {"show": 3}},
    ],
}


def text_of(html: str) -> str:
    """The text; lines and cells are separated by one space."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def texts(known: NodeState) -> dict[str, str]:
    """The text of each room."""
    return {name: text for name, html in sections(known).items() if (text := text_of(html))}


def state(**answers: Any) -> NodeState:
    """A state with these answers, by the last part of their paths; `node`: of the cluster."""
    known = NodeState()
    known.others = {f"/v1/{name}": answer for name, answer in answers.items()}
    known.others["/v1/node/cluster"] = known.others.get("/v1/node")
    return known


@pytest.mark.parametrize(
    ("answer", "room", "parts"),
    [
        (
            {"edge": EDGE},
            "edge",
            "Verdict not healthy | disk required fails 2% free | net wanted no result yet",
        ),
        ({"edge": EDGE}, "edge", "Test window 480 s left, does not count now: no controller"),
        ({"edge": EDGE}, "edge", "IMGA (running) active 1 | at noon WatchdogHung: camera"),
        ({"edge": {**EDGE, "boots": BOOTS}}, "edge", "reason 0 v0 | reason 1 v1"),
        ({"edge": {**EDGE, "silence": "it has not ticked"}}, "edge", "Verdict unknown: it has not ticked"),
        ({"edge": {"health": None}}, "edge", "unknown: the guardian has not published its status"),
        ({"node": NODE}, "remedy", "taint node.kubernetes.io/out-of-service nodeshutdown:NoExecute"),
        ({"node": NODE}, "remedy", "annotation remedy.kubeletx.io/set cordon | kubeletx remedy plan n1"),
        ({"sessions": {"items": [SESSION]}}, "sessions", "shop/ann shop/cart Available 2 fornax | silent"),
        (
            {"fornaxcore": {"identifier": "n1", "revision": 42, "cores": CORES}},
            "cores",
            "10.0.0.1:18001 primary registered \u2013 41 of 42 5 | two not connected | refused",
        ),
        (
            {"images": {"items": IMAGES, "missing": ["c"]}},
            "images",
            "a: 2 images, 21 MiB | big 20 not used others small 1.0 | shop/p1, shop/p2 and 2 more | No answer from c.",
        ),
        ({"images": {"items": IMAGES * 50}}, "images", "50 images, 0.0 MiB"),
        ({"images": {"items": IMAGES[:1] * 107}}, "images", "7 more are not shown"),
        (
            {"plugins": {"items": [PLUGIN]}},
            "plugins",
            "rack 1.2 degraded process 71 all but runtimes 31 1.2 2 health-check ups degraded no answer panel hung ready 3 kubeletx",
        ),
    ],
)
def test_each_room_shows_what_the_agent_says(answer: dict[str, Any], room: str, parts: str) -> None:
    shown = texts(state(**answer))
    assert set(shown) == {room}
    for part in parts.split(" | "):
        assert part in shown[room]
    assert "dedicated" not in shown[room]


def test_rooms_that_are_off_have_no_section() -> None:
    empty: dict[str, Any] = {"items": []}
    off = state(sessions=empty, images=empty, plugins=empty, panels=empty, fornaxcore={"cores": []}, node={})
    assert texts(NodeState()) == texts(off) == {}


@pytest.mark.parametrize("wrong", [7, "text", [1], {"x": [2]}, None])
def test_an_answer_of_another_shape_spoils_at_most_its_own_section(wrong: Any) -> None:
    def broken(value: Any) -> Any:
        """The value with `wrong` in the place of everything below its second level."""
        return {name: [dict.fromkeys(each, wrong) for each in items] for name, items in value.items()}

    good = {"edge": EDGE, "node": NODE, "images": {"items": IMAGES}}
    known = state(
        **good,
        sessions=broken({"items": [SESSION]}),
        plugins=broken({"items": [PLUGIN]}),
        fornaxcore=broken({"cores": CORES}),
    )
    shown = texts(known)
    assert {name: shown[name] for name in ("edge", "remedy", "images")} == texts(state(**good))
    for part in EDGE:
        assert set(texts(state(edge={**EDGE, part: wrong}))) == {"edge"}
    rooms = ("edge", "node", "sessions", "fornaxcore", "images", "plugins", "panels")
    assert set(texts(state(**dict.fromkeys(rooms, wrong)))) <= {"edge"}
    bad_panel = state(panels={"items": [{"name": "p"}]}, **{"panels/p": {"type": "table", "rows": wrong}})
    assert set(texts(bad_panel)) == {"panels"}
    text_of(sessions_of(state(sessions={"items": [{"pod": "shop/cart", "clients": wrong}]}), "shop/cart"))


def test_frozen_pods_show_the_request_and_the_memory_that_they_gave_back() -> None:
    message = "hibernated in 0.05s; memory: 48.4 MiB before, 0.4 MiB after"
    metadata = {"namespace": "shop", "annotations": {"kubeletx.io/standby": "hibernated"}}
    known = NodeState()
    for name, status, reason, text in (
        ("cart", "True", "Hibernated", message),
        ("sick", "False", "FreezeFailed", "no"),
    ):
        condition = {"type": "kubeletx.io/Standby", "status": status, "reason": reason, "message": text}
        pod = {"metadata": {**metadata, "name": name}, "status": {"conditions": [condition]}}
        known.pods[name] = msgspec.convert(pod, Pod)
    text = texts(known)["standby"]
    assert "shop/cart Hibernated hibernated 48.4 → 0.4" in text
    assert "shop/sick FreezeFailed hibernated \u2013" in text
    assert "kubeletx pod activate NAME -n NAMESPACE" in text


def test_attachments_show_driver_holder_mode_and_why_one_waits() -> None:
    known = NodeState()
    common = {"namespace": "shop", "kind": "flex", "driver": "flexvolume"}
    options = {"name": "orders", "backend": "rbd"}
    known.volumes = (
        {**common, "pod": "db", "name": "data", "state": "ready", "options": options, "readOnly": True},
        {**common, "pod": "db-2", "name": "data", "state": "preparing", "message": "held by node two"},
        {"namespace": "shop", "kind": "empty-dir", "pod": "db", "name": "tmp", "state": "ready"},
    )
    text = texts(known)["attachments"]
    assert "orders flexvolume, rbd shop/db ReadWriteOnce, read-only ready" in text
    assert "held by node two" in text
    assert "tmp" not in text


def test_panels_show_values_never_html() -> None:
    items = [{"name": name, "title": f"<b>{name}</b>", "plugin": "rack"} for name in ("t", "x", "p", "new")]
    contents: dict[str, Any] = {
        "panels/t": {"type": "table", "columns": ["#A<i>"], "rows": [["<script>alert(1)</script>"]]},
        "panels/x": {"type": "text", "text": "</pre><script>"},
        "panels/p": {"type": "png", "data": "iVBORw0KGgo=", "text": '"><script>'},
    }
    known = state(panels={"items": items}, **contents)
    known.silences["/v1/panels/x"] = Silence(datetime(2026, 1, 1, tzinfo=UTC), "it <hangs>")
    html = sections(known)["panels"]
    assert not re.search("<script|<b>|<i>", html)
    for part in (
        "#A&lt;i&gt;",
        "&lt;script&gt;alert(1)",
        "it &lt;hangs&gt;. What follows is the last answer.",
        "no answer yet",
    ):
        assert part in html
    assert re.search(r'<img class="panel" src="/panels/p\.png\?\w+" alt="&#34;&gt;&lt;script&gt;">', html)


# --- reading ---


class SlowAgent(FakeAgent):
    """An agent that does not answer the paths in `hung`, and fails those in `failing`."""

    def __init__(self) -> None:
        super().__init__()
        self.hung: set[str] = set()
        self.failing: set[str] = set()
        self.answers |= {
            "/v1/images": {"items": [{"ref": "busybox", "runtimes": ["a"]}]},
            "/v1/panels": {"items": [{"name": "rack", "title": "Rack"}]},
            "/v1/panels/rack": {"type": "text", "text": "3 fans"},
        }

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.failing:
            return web.json_response({"message": "it fails"}, status=500)
        if request.path in self.hung:
            await asyncio.Event().wait()
        return await super()._answer(request)


@asynccontextmanager
async def viewing(agent: SlowAgent, directory: Path, timeout: float) -> AsyncIterator[tuple[NodeState, Feed]]:
    """The state of a viewer. `timeout`: of the agent's answers."""
    client = Agent(directory / "agent.sock", timeout_seconds=timeout)
    feed = Feed(client, slow_seconds=0.05)
    async with asyncio.timeout(60), agent.serving(client.socket_path), feed.viewing() as known:
        yield known, feed
        await feed.close()


async def until(feed: Feed, expression: Any) -> None:
    revision = -1
    while not expression():
        revision = await feed.wait_change(revision)


async def test_a_hung_answer_delays_nothing_else(tmp_path: Path) -> None:
    agent = SlowAgent()
    agent.hung = {"/v1/images", "/v1/panels/rack", "/v1/plugins"}
    agent.answers["/v1/sessions"] = {"items": [SESSION]}
    async with viewing(agent, tmp_path, timeout=3600) as (known, feed):
        await until(feed, lambda: "sessions" in texts(known))
        assert "no answer yet" in texts(known)["panels"]
        agent.answers["/v1/sessions"] = {"items": []}
        await until(feed, lambda: "sessions" not in texts(known))


async def test_an_old_answer_stays_with_a_note_until_there_is_a_new_one_or_the_room_is_off(
    tmp_path: Path,
) -> None:
    agent = SlowAgent()
    async with viewing(agent, tmp_path, timeout=60) as (known, feed):
        await until(feed, lambda: "3 fans" in texts(known).get("panels", ""))
        agent.failing = {"/v1/images", "/v1/panels/rack"}
        await until(feed, lambda: len(known.silences) == 2)
        for room, value in (("images", "busybox"), ("panels", "3 fans")):
            assert re.search(rf"No answer for \d+s : it fails.*{value}", texts(known)[room])
        agent.failing = set()
        await until(feed, lambda: not known.silences)
        assert "No answer" not in str(texts(known))
        del agent.answers["/v1/images"]
        await until(feed, lambda: "images" not in texts(known))
