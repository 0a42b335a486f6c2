"""Tests of the parts of a pod's page that are computed."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import msgspec
from kubeletx_web.agent import Agent
from kubeletx_web.pod_log import harmless, log_lines
from kubeletx_web.pod_page import PodPage, units
from kubeletx_web.start import start_rows
from kubeletx_web.state import NodeState

from kubeletx.kube.start_timeline import PodAction, PodStart
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(action: str, end: float, seconds: float, reason: str = "") -> PodAction:
    return PodAction(at=at(end), action=action, result="", seconds=seconds, reason=reason)


def test_attempts_of_one_step_are_bars_of_one_row() -> None:
    failed = "ErrImagePull"
    start = PodStart(
        seen_at=NOON,
        steps=(
            step("bind", 1, 1),
            step("ensure image web", 2, 1, failed),
            step("ensure image web", 10, 2, failed),
        ),
    )
    bind, image = start_rows(start)
    assert (bind.label, bind.text, bind.failed) == ("bind", "1.0 s", False)
    assert (image.label, image.text) == ("image web", "9.0 s in 2 attempts, failed: ErrImagePull")
    assert image.bars == [("failed", 100, 100), ("failed", 800, 200)]


def test_a_step_that_has_not_ended_goes_to_the_end_of_the_line() -> None:
    rows = start_rows(PodStart(seen_at=NOON, running_at=at(4), steps=(step("start unit web", 4, 4),)))
    assert [(row.label, row.open_since) for row in rows] == [("container web", None), ("ready", at(4))]
    assert rows[-1].bars == [("open", 800, 200)]


async def test_freezes_and_wakes_are_marked_in_the_plots(tmp_path: Path) -> None:
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}, Pod)
    about = {"kind": "Pod", "uid": "u"}
    state = NodeState()
    state.pods["u"] = pod
    state.times = (at(0), at(10), at(20))
    state.usage = {"u": ([1, None, 3], [100, 50, None])}
    for number, (reason, seconds) in enumerate((("Standby", -60), ("Standby", 10), ("Activated", 15))):
        event = {"metadata": {"name": str(number)}, "involvedObject": about, "reason": reason}
        event["lastTimestamp"] = at(seconds).isoformat()
        state.events[str(number)] = msgspec.convert(event, Event)

    page = PodPage(state, "n", "p", lambda: at(20), Agent(tmp_path / "none"))
    html = await page.html()
    given = re.search(r'data-usage="([^"]*)"', html)
    assert given is not None
    values = json.loads(unescape(given[1]))
    begin = round(NOON.timestamp())
    assert values["marks"] == [[begin + 15, "woken"], [begin + 10, "frozen"]]
    assert values["memory"] == [100, 50, None]
    assert html.count('class="mark frozen"') == 2  # memory and CPU
    assert "woken" in html


def test_units_are_in_the_order_of_their_start() -> None:
    def ended(code: int) -> dict[str, object]:
        return {"terminated": {"exitCode": code, "reason": "Error"}}

    status = {"ready": False, "restartCount": 1, "image": "", "imageID": ""}
    pod = msgspec.convert(
        {
            "spec": {
                "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
                "containers": [{"name": "web"}],
            },
            "status": {"containerStatuses": [{"name": "web", "lastState": ended(3), **status}]},
        },
        Pod,
    )
    init, side, web = units(pod)
    assert (init.role, side.role) == ("init container", "sidecar")
    assert (web.role, web.state, web.last) == ("container", "Waiting", "exit code 3 (Error)")


def test_signs_that_a_terminal_obeys_are_visible_in_a_log() -> None:
    assert harmless(b"\x1b[1;31mred\x1b[0m\r") == "red"
    assert (
        harmless("\x1b]0;title\x07 \u202eabc \x9b \xff".encode())
        == "\u241b]0;title\u2407 \\u202eabc \\u009b \xff"
    )
    assert harmless(b"one\rtwo\tthree \xff") == "one\u240dtwo\tthree \ufffd"


async def test_a_line_arrives_whole_whatever_the_pieces_are() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for piece in (b"o", b"ne\ntw", b"o\n\nlast"):
            yield piece

    assert [batch async for batch in log_lines(pieces())] == [["one"], ["two", ""], ["last"]]
