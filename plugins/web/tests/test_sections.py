"""Sections of the node's page: what they show, and that a slow answer delays nothing."""

from __future__ import annotations

import asyncio
import base64
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
from kubeletx_web.live import changes
from kubeletx_web.node_page import NodePage, Query
from kubeletx_web.room_values import ROOMS, PanelContent, Silence
from kubeletx_web.sections import MAX_ROWS, sections
from kubeletx_web.state import Feed, NodeState
from kubeletx_web.templates import render
from kubeletx_web.values import Volume

from kubeletx.kube.types.core import Pod
from plugins.web.tests.fake_agent import FakeAgent

NOW = "2026-01-01T12:00:00Z"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def state(answers: dict[str, Any]) -> NodeState:
    """A state with these answers, as JSON by path."""
    known = NodeState()
    for path, answer in answers.items():
        known.others[path] = msgspec.convert(answer, ROOMS.get(path, PanelContent))
    return known


def texts(known: NodeState) -> dict[str, str]:
    """The text of each section by its title; lines and cells are separated by one space."""
    shown = {}
    for name, some in sections(known).items():
        for section in some:
            html = render("room", id=name, sections=[section])
            shown[section.title] = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    return shown


def test_rooms_that_are_off_have_no_section() -> None:
    empty: dict[str, Any] = {"items": []}
    assert texts(NodeState()) == {}
    assert texts(state({f"/v1/{room}": empty for room in ("sessions", "images", "plugins", "panels")})) == {}


def test_frozen_pods_show_the_request_and_the_memory_that_they_gave_back() -> None:
    condition = {
        "type": "kubeletx.io/Standby",
        "status": "True",
        "reason": "Hibernated",
        "message": "hibernated in 0.05s; memory: 48.4 MiB before, 0.4 MiB after",
        "lastTransitionTime": NOW,
    }
    metadata = {"namespace": "shop", "name": "cart", "annotations": {"kubeletx.io/standby": "hibernated"}}
    failed = {**condition, "status": "False", "reason": "FreezeFailed", "message": "main does not stop"}
    known = NodeState()
    for name, one in (("cart", condition), ("sick", failed)):
        pod = {"metadata": {**metadata, "name": name}, "status": {"conditions": [one]}}
        known.pods[name] = msgspec.convert(pod, Pod, strict=False)
    text = texts(known)["Standby"]
    assert "shop/cart Hibernated hibernated 48.4 → 0.4" in text
    assert "shop/sick FreezeFailed hibernated \u2013" in text
    assert "kubeletx pod activate NAME -n NAMESPACE" in text


def test_attachments_show_driver_holder_mode_and_why_one_waits() -> None:
    known = NodeState()
    common = {"namespace": "shop", "kind": "flex", "driver": "flexvolume"}
    options = {"name": "orders", "backend": "rbd", "accessModes": "ReadWriteOnce"}
    known.volumes = msgspec.convert(
        [
            {**common, "pod": "db", "name": "data", "state": "ready", "options": options, "readOnly": True},
            {**common, "pod": "db-2", "name": "data", "state": "preparing", "message": "held by node two"},
            {"namespace": "shop", "kind": "empty-dir", "pod": "db", "name": "tmp", "state": "ready"},
        ],
        tuple[Volume, ...],
    )
    text = texts(known)["Attachments"]
    assert "orders flexvolume, rbd shop/db ReadWriteOnce, read-only ready" in text
    assert "preparing" in text
    assert "held by node two" in text
    assert "tmp" not in text


def test_sessions_and_cores() -> None:
    session = {
        **{"namespace": "shop", "name": "ann", "pod": "shop/cart", "state": "Available", "createdAt": NOW},
        **{"clients": [{"name": "a"}, {"name": "b"}], "silent": True, "origin": "fornax"},
    }
    core = {"address": "10.0.0.1:18001", "role": "primary", "connected": True, "registered": True}
    cores = [{**core, "acknowledged": 41, "sent": {"POD_STATE": 5}}, {"address": "two", "problem": "refused"}]
    known = state(
        {
            "/v1/sessions": {"items": [session]},
            "/v1/fornaxcore": {"identifier": "n1", "state": "Ready", "revision": 42, "cores": cores},
        }
    )
    shown = texts(known)
    assert "shop/ann shop/cart Available 2 fornax" in shown["Sessions"]
    assert "silent" in shown["Sessions"]
    assert "10.0.0.1:18001 primary registered \u2013 42 41 0 5" in shown["FornaxCores"]
    assert "two not connected" in shown["FornaxCores"]
    assert "refused" in shown["FornaxCores"]


def test_edge_health_shows_verdict_window_slots_and_the_last_boot() -> None:
    health = {
        **{"Phase": "Testing", "RemainingTestTime": 480, "HeldBy": "no controller", "IsHealthy": False},
        "Checks": [
            {"Name": "disk", "Level": "required", "Ok": False, "Message": "2% free"},
            {"Name": "net", "Level": "wanted", "Ok": None},
        ],
    }
    slots = [{"PartitionLabel": "IMGA", "PartitionState": "active", "ShortVersion": "1"}]
    node = {"CurPart": "IMGA", "RebootReason": "WatchdogHung: camera", "RebootTime": NOW}
    text = texts(state({"/v1/edge": {"health": health, "node": node, "slots": slots}}))["Edge health"]
    for part in (
        "Verdict not healthy",
        "Test window 480 s left, does not count now: no controller",
        f"Last boot WatchdogHung: camera, {NOW}",
        "disk required fails 2% free",
        "net wanted no result yet",
        "IMGA (running) active 1",
    ):
        assert part in text
    silent = texts(state({"/v1/edge": {"health": health, "silence": "it has not ticked"}}))["Edge health"]
    assert "unknown: it has not ticked" in silent


def test_remedy_shows_what_a_controller_has_set() -> None:
    taints = [
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
        {"key": "dedicated", "effect": "NoSchedule"},
    ]
    annotations = {"remedy.kubeletx.io/set": "cordon", "other": "x"}
    node = {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"taints": taints}}
    text = texts(state({"/v1/node/cluster": node}))["Remedy"]
    assert "taint node.kubernetes.io/out-of-service nodeshutdown:NoExecute" in text
    assert "annotation remedy.kubeletx.io/set cordon" in text
    assert "kubeletx remedy plan n1" in text
    assert "dedicated" not in text
    healthy = {"metadata": {"name": "n1"}, "spec": {"taints": taints[1:]}}
    assert texts(state({"/v1/node/cluster": healthy})) == {}


def test_images_are_grouped_by_store_the_largest_first() -> None:
    mebibyte = 1024 * 1024
    images = [
        {"ref": "small", "runtimes": ["a"], "store": "1", "sizeBytes": mebibyte},
        {"ref": "id", "tags": ["big"], "runtimes": ["a"], "store": "1", "sizeBytes": 20 * mebibyte},
        {"ref": "other", "runtimes": ["b"], "store": "2", "usedBy": [f"shop/p{n}" for n in range(5)]},
    ]
    text = texts(state({"/v1/images": {"items": images, "missing": ["c"]}}))["Images"]
    assert "a: 2 images, 21 MiB" in text
    assert text.index("big 20 not used") < text.index("small 1.0 not used")
    assert "shop/p0, shop/p1, shop/p2 and 2 more" in text
    assert "No answer from c." in text


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    images = [{"ref": f"i{n}", "runtimes": ["a"]} for n in range(MAX_ROWS + 7)]
    assert "7 more are not shown" in texts(state({"/v1/images": {"items": images}}))["Images"]


def test_plugins_show_processes_and_registrations_that_are_not_ready() -> None:
    process = {"pid": 71, "memoryBytes": 31 * 1024 * 1024, "cpuSeconds": 1.25, "restarts": 2}
    registrations = [
        {"name": "ups", "hook": "health-check", "state": "degraded", "reason": "no answer"},
        {"name": "fine", "hook": "panel", "state": "ready"},
        {"name": "hung", "hook": "panel", "state": "ready", "abandonedCalls": {"show": 3}},
    ]
    plugin = {"name": "rack", "version": "1.2", "state": "degraded", "processes": [process]}
    off = {"name": "spare", "state": "disabled"}
    text = texts(state({"/v1/plugins": {"items": [{**plugin, "registrations": registrations}, off]}}))[
        "Plugins"
    ]
    assert "process 71 all but runtimes 31 1.2 2" in text
    assert "health-check ups degraded no answer" in text
    assert "panel hung ready 3" in text
    assert "panel fine" not in text
    assert "Disabled: spare." in text


def test_panels_show_values_never_html() -> None:
    items = [{"name": name, "title": f"<b>{name}</b>", "plugin": "rack"} for name in ("t", "x", "p", "new")]
    known = state(
        {
            "/v1/panels": {"items": items},
            "/v1/panels/t": {"type": "table", "columns": ["A<i>"], "rows": [["<script>alert(1)</script>"]]},
            "/v1/panels/x": {"type": "text", "text": "</pre><script>"},
            "/v1/panels/p": {"type": "png", "data": PNG, "text": '"><script>'},
        }
    )
    known.silences["/v1/panels/x"] = Silence(datetime(2026, 1, 1, tzinfo=UTC), "it <hangs>")
    html = render("room", id="panels", sections=sections(known)["panels"])
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert re.search(
        r'<img class="panel" src="/panels/p\.png\?[0-9a-f]+" alt="&#34;&gt;&lt;script&gt;">', html
    )
    assert "it &lt;hangs&gt;. What follows is the last answer." in html
    assert "no answer yet" in html


# --- reading ---


class SlowAgent(FakeAgent):
    """An agent that does not answer the paths in `hung`, and fails those in `failing`."""

    def __init__(self) -> None:
        super().__init__()
        self.hung: set[str] = set()
        self.failing: set[str] = set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.failing:
            return web.json_response({"message": "it fails"}, status=500)
        if request.path in self.hung:
            self.asked.add(request.path)
            await asyncio.Event().wait()
        return await super()._answer(request)


@asynccontextmanager
async def viewing(agent: SlowAgent, directory: Path, timeout: float) -> AsyncIterator[tuple[NodeState, Feed]]:
    """The state of a viewer. `timeout`: of the agent's answers."""
    client = Agent(directory / "agent.sock", timeout_seconds=timeout)
    feed = Feed(client, slow_seconds=0.05)
    try:
        async with asyncio.timeout(60), agent.serving(client.socket_path), feed.viewing() as known:
            yield known, feed
            await feed.close()
    finally:
        await client.close()


@pytest.fixture
def agent() -> SlowAgent:
    """An agent with a panel and an image."""
    agent = SlowAgent()
    agent.answers |= {
        "/v1/images": {"items": [{"ref": "busybox", "runtimes": ["a"]}]},
        "/v1/panels": {"items": [{"name": "rack", "title": "Rack"}]},
        "/v1/panels/rack": {"type": "text", "text": "3 fans"},
    }
    return agent


async def until(feed: Feed, expression: Any) -> None:
    revision = -1
    while not expression():
        revision = await feed.wait_change(revision)


async def test_a_hung_answer_delays_nothing_else(agent: SlowAgent, tmp_path: Path) -> None:
    agent.hung = {"/v1/images", "/v1/panels/rack", "/v1/plugins"}
    agent.answers["/v1/sessions"] = {
        "items": [{"namespace": "shop", "name": "ann", "pod": "shop/cart", "state": "Open", "createdAt": NOW}]
    }
    async with viewing(agent, tmp_path, timeout=3600) as (known, feed):
        await until(feed, lambda: "Sessions" in texts(known))
        assert "no answer yet" in texts(known)["Rack"]
        agent.answers["/v1/sessions"] = {"items": []}
        await until(feed, lambda: "Sessions" not in texts(known))


async def test_an_old_answer_stays_with_a_note_until_there_is_a_new_one(
    agent: SlowAgent, tmp_path: Path
) -> None:
    async with viewing(agent, tmp_path, timeout=60) as (known, feed):
        await until(feed, lambda: "3 fans" in texts(known).get("Rack", ""))
        agent.failing = {"/v1/images", "/v1/panels/rack"}
        await until(feed, lambda: len(known.silences) == 2)
        for title, value in (("Images", "busybox"), ("Rack", "3 fans")):
            text = texts(known)[title]
            assert re.search(r"No answer for \d+s : it fails", text)
            assert value in text
        agent.failing = set()
        await until(feed, lambda: not known.silences)
        assert "No answer" not in str(texts(known))


async def test_a_room_that_is_switched_off_loses_its_section(agent: SlowAgent, tmp_path: Path) -> None:
    async with viewing(agent, tmp_path, timeout=60) as (known, feed):
        await until(feed, lambda: "Images" in texts(known))
        del agent.answers["/v1/images"]
        await until(feed, lambda: "Images" not in texts(known))


async def test_an_answer_that_cannot_be_read_is_a_note(agent: SlowAgent, tmp_path: Path) -> None:
    agent.answers["/v1/panels/rack"] = {"type": "film"}
    async with viewing(agent, tmp_path, timeout=60) as (known, feed):
        await until(feed, lambda: known.silences)
        assert "invalid answer to /v1/panels/rack" in texts(known)["Rack"]


def test_a_room_that_is_switched_on_appears_without_another_load_of_the_page() -> None:
    known = NodeState()
    page = NodePage(known, Query(), lambda: datetime(2026, 1, 1, tzinfo=UTC))
    before = page.fragments()
    known.others.update(
        state({"/v1/fornaxcore": {"identifier": "n", "cores": [{"address": "core-1:80"}]}}).others
    )
    after = page.fragments()
    assert before.parts.keys() == after.parts.keys()
    message = changes(before, after)
    assert message.startswith('<div hx-swap-oob="true" id="room-cores"')
    assert "core-1:80" in message
