"""Sections of the node's page: what they show, and that a slow or strange answer spoils nothing else."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubeletx_web.agent import Agent
from kubeletx_web.sections import sections, sessions_of
from kubeletx_web.state import Feed, NodeState, Silence

from kubeletx.kube.types.core import Pod
from plugins.web.tests.fake_agent import FakeAgent

NOW = "2026-01-01T12:00:00Z"
MEBIBYTE = 1024 * 1024
DISK = {"Name": "disk", "Level": "required", "Ok": False, "Message": "2% free"}
HEALTH = {"RemainingTestTime": 480, "HeldBy": "no controller", "Checks": [DISK, {"Name": "net", "Ok": None}]}
EDGE = {
    "health": HEALTH,
    "node": {"CurPart": "IMGA", "RebootReason": "WatchdogHung", "RebootTime": "at noon"},
    "slots": [{"PartitionLabel": "IMGA", "PartitionState": "active", "ShortVersion": "1"}],
}
BOOTED = {"Boots": [{"Reason": f"reason {n}", "Time": NOW, "Image": f"v{n}"} for n in range(2)]}
FENCED = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
NODE = {
    "metadata": {"name": "n1", "annotations": {"remedy.kubeletx.io/set": "cordon", "other": "x"}},
    "spec": {"taints": [FENCED, {"key": "dedicated", "effect": "NoSchedule"}]},
}
SESSION = {
    **{"namespace": "shop", "name": "ann", "pod": "shop/cart", "state": "Available", "createdAt": NOW},
    **{"clients": [{"name": "a"}, {"name": "b"}], "silent": True, "origin": "fornax"},
}
CORE = {"address": "one:80", "role": "primary", "connected": True, "registered": True, "acknowledged": 41}
CORES = [{**CORE, "sent": {"POD_STATE": 5}}, {"address": "two", "problem": "refused"}]
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
FREED = "hibernated in 0.05s; memory: 48.4 MiB before, 0.4 MiB after"
ORDERS = {"options": {"name": "orders", "backend": "rbd"}, "readOnly": True, "state": "ready"}


def pod(name: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """A pod with a condition Standby."""
    metadata = {"namespace": "shop", "name": name, "annotations": {"kubeletx.io/standby": "hibernated"}}
    condition = {"type": "kubeletx.io/Standby", "status": status, "reason": reason, "message": message}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def volume(**more: Any) -> dict[str, Any]:
    common = {"namespace": "shop", "pod": "db", "name": "data", "kind": "flex", "driver": "flexvolume"}
    return {**common, "state": "preparing", **more}


def state(*, pods: Any = (), volumes: Any = (), **answers: Any) -> NodeState:
    """A state with these answers, by the last part of their paths; `node`: of the cluster."""
    known = NodeState()
    known.pods = {each["metadata"]["name"]: msgspec.convert(each, Pod) for each in pods}
    known.volumes = tuple(volumes)
    known.others = {f"/v1/{name}".replace("/node", "/node/cluster"): each for name, each in answers.items()}
    return known


def texts(known: NodeState) -> dict[str, str]:
    """The text of each room; lines and cells are separated by one space."""
    shown = {name: re.sub(r"<[^>]*>", " ", html).split() for name, html in sections(known).items()}
    return {name: " ".join(words) for name, words in shown.items() if words}


@pytest.mark.parametrize(
    ("room", "parts", "known"),
    [
        ("edge", "Verdict not healthy | disk required fails 2% free | net no result yet", state(edge=EDGE)),
        ("edge", "Test window 480 s left, does not count now: no controller", state(edge=EDGE)),
        ("edge", "IMGA (running) active 1 | at noon WatchdogHung", state(edge=EDGE)),
        ("edge", "reason 0 v0 | reason 1 v1", state(edge={**EDGE, "health": BOOTED})),
        ("edge", "unknown: it has not ticked", state(edge={**EDGE, "silence": "it has not ticked"})),
        ("edge", "unknown: the guardian has not published", state(edge={"health": None})),
        ("remedy", "taint node.kubernetes.io/out-of-service nodeshutdown:NoExecute", state(node=NODE)),
        ("remedy", "annotation remedy.kubeletx.io/set cordon | remedy plan n1", state(node=NODE)),
        ("standby", "cart Hibernated hibernated 48.4 \u2192 0.4", state(pods=[pod("cart", "True", "Hibernated", FREED)])),
        ("standby", "FreezeFailed hibernated \u2013", state(pods=[pod("sick", "False", "FreezeFailed", "no")])),
        ("sessions", "shop/ann shop/cart Available 2 fornax | silent", state(sessions={"items": [SESSION]})),
        ("cores", "one:80 primary registered \u2013 41 of 42 5", state(fornaxcore={"revision": 42, "cores": CORES})),
        ("cores", "two not connected | refused", state(fornaxcore={"cores": CORES})),
        ("attachments", "orders flexvolume, rbd shop/db ReadWriteOnce, read-only ready", state(volumes=[volume(**ORDERS)])),
        ("attachments", "held by two", state(volumes=[volume(message="held by two"), volume(driver="", name="dedicated")])),
        ("images", "a: 2 images, 21 MiB | big 20 not used others small 1.0", state(images={"items": IMAGES})),
        ("images", "No answer from c. | shop/p2 and 2 more", state(images={"items": IMAGES, "missing": ["c"]})),
        ("images", "7 more are not shown", state(images={"items": IMAGES[:1] * 107})),
        ("plugins", "rack 1.2 degraded process 71 all but runtimes 31 1.2 2", state(plugins={"items": [PLUGIN]})),
        ("plugins", "2 health-check ups degraded no answer panel hung ready 3 kub", state(plugins={"items": [PLUGIN]})),
    ],
)  # fmt: skip
def test_each_room_shows_what_the_agent_says(room: str, parts: str, known: NodeState) -> None:
    shown = texts(known)
    assert set(shown) == {room}
    assert [part for part in [*parts.split(" | "), "kube"] if part not in shown[room]] == []
    assert "dedicated" not in shown[room]


def test_rooms_that_are_off_have_no_section() -> None:
    empty: dict[str, Any] = {"items": []}
    off = state(sessions=empty, images=empty, plugins=empty, panels=empty, fornaxcore={"cores": []}, node={})
    assert texts(NodeState()) == texts(off) == {}


@pytest.mark.parametrize("wrong", [7, "text", [1], {"x": [2]}, None])
def test_an_answer_of_another_shape_spoils_at_most_its_own_section(wrong: Any) -> None:
    good = {"edge": EDGE, "node": NODE, "images": {"items": IMAGES}}
    rooms: dict[str, tuple[str, dict[str, Any]]]
    rooms = {"sessions": ("items", SESSION), "plugins": ("items", PLUGIN), "fornaxcore": ("cores", CORE)}
    bad: dict[str, Any] = {name: {key: [dict.fromkeys(each, wrong)]} for name, (key, each) in rooms.items()}
    bad["panels"] = {"items": [{"name": "p"}]}
    bad["panels/p"] = {"type": "table", "columns": wrong, "rows": wrong}
    shown = texts(state(**good, **bad))
    assert {name: shown[name] for name in ("edge", "remedy", "images")} == texts(state(**good))
    for part in EDGE:
        assert set(texts(state(edge={**EDGE, part: wrong}))) == {"edge"}
    assert set(texts(state(**dict.fromkeys((*good, *bad), wrong)))) <= {"edge"}
    assert sessions_of(state(sessions={"items": [{"pod": "a/b", "clients": wrong}]}), "a/b")


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
    hung = "it &lt;hangs&gt;. What follows is the last answer."
    for part in ("#A&lt;i&gt;", "&lt;script&gt;alert(1)", hung, "no answer yet"):
        assert part in html
    assert re.search(r'<img class="panel" src="/panels/p\.png\?\w+" alt="&#34;&gt;&lt;script&gt;">', html)


async def test_a_slow_answer_delays_no_other_and_an_old_one_stays_with_a_note(tmp_path: Path) -> None:
    agent = FakeAgent()
    agent.hung = {"/v1/plugins", "/v1/panels/slow"}
    agent.answers |= {
        "/v1/images": {"items": IMAGES},
        "/v1/panels": {"items": [{"name": "rack"}, {"name": "slow"}]},
        "/v1/panels/rack": {"type": "text", "text": "3 fans"},
    }
    client = Agent(tmp_path / "agent.sock", timeout_seconds=3600)
    feed = Feed(client, slow_seconds=0.05)

    async def until(room: str, pattern: str) -> None:
        """Wait until the text of this room is so."""
        revision = -1
        while not re.fullmatch(pattern, texts(known).get(room, "")):
            revision = await feed.wait_change(revision)

    async with asyncio.timeout(60), agent.serving(client.socket_path), feed.viewing() as known:
        await until("panels", "rack 3 fans .*slow no answer yet.*")
        agent.failing = {"/v1/images", "/v1/panels/rack"}
        await until("images", r".*No answer for \d+s : it fails.* big .*")
        await until("panels", r"rack No answer for \d+s : it fails.* 3 fans .*")
        agent.failing = set()
        await until("images", "Images a: 2 images.*")
        del agent.answers["/v1/images"]  # its room is switched off
        await until("images", "")
        await feed.close()
