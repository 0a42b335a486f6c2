"""``kubeletx describe``."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubeletx.cli.describe import timeline
from kubeletx.cli.output.screen import Screen
from kubeletx.kube.start_timeline import PodAction, PodStart
from kubeletx.kube.types.core import ObjectReference, PodCondition
from kubeletx.kube.types.event import Event
from kubeletx.server.views import ImageServiceView, RuntimeDetail
from tests.unit.cli.commands.objects import T0, Run, pod, runtime


def test_a_pod_is_described_with_its_runtime_and_events(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.events = [
        Event(
            involved_object=ObjectReference(kind="Pod", namespace="default", name="web", uid="uid-web"),
            type="Normal",
            reason="Started",
            message="Started container web",
            last_timestamp=T0,
        ),
        Event(involved_object=ObjectReference(kind="Pod", namespace="default", name="other"), reason="Other"),
    ]
    text = kubeletx("describe", "pod", "web").stdout
    assert re.search(r"^Name: +web$", text, re.MULTILINE)
    assert re.search(r"^Runtime: +one$", text, re.MULTILINE)
    assert "Started container web" in text
    assert "Other" not in text


def test_a_pod_that_stands_by_is_described_with_the_time_and_its_memory(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    assert "Standby:" not in kubeletx("describe", "pod", "web").stdout
    resting = PodCondition(
        type="kubeletx.io/Standby",
        status="True",
        reason="Hibernated",
        message="memory: 64.0 MiB before, 1.5 MiB after",
        last_transition_time=T0,
    )
    frozen = PodCondition(type="kubeletx.io/UnitsRunning", status="False", reason="UnitsSuspended")
    made = pod()
    agent.backend.put(
        msgspec.structs.replace(
            made, status=msgspec.structs.replace(made.status, conditions=(resting, frozen))
        )
    )
    text = kubeletx("describe", "pod", "web").stdout
    found = r"^Standby: +Hibernated since .*20\d\d.* \(memory: 64.0 MiB before, 1.5 MiB after\)$"
    assert re.search(found, text, re.MULTILINE)
    assert re.search("^Status: +Hibernated$", text, re.MULTILINE)


def test_the_history_of_a_pod_is_shown_when_asked_for(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.histories["default/web"] = (
        PodAction(
            at=T0,
            action="start unit web",
            result="unit failed: StartError: no such file",
            seconds=0.25,
            count=3,
        ),
    )
    text = kubeletx("describe", "pod", "web", "--history").stdout
    assert re.search(r"x3 +0.25s +start unit web +unit failed: StartError: no such file", text)
    assert "History" not in kubeletx("describe", "pod", "web").stdout


@pytest.mark.parametrize(("width", "cells"), [(None, 80), (200, 200), (40, 40)])
def test_the_start_of_a_pod_is_a_line_and_bars_that_fit_the_terminal(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch, width: int | None, cells: int
) -> None:
    monkeypatch.setattr(timeline, "screen", lambda: Screen(width))
    agent.backend.put(pod())

    def at(seconds: float) -> datetime:
        return T0 + timedelta(seconds=seconds)

    steps = (
        PodAction(at=at(0.002), action="bind", result="bound", seconds=0.002),
        PodAction(at=at(2), action="ensure image web", result="", reason="ErrImagePull", seconds=1),
        PodAction(at=at(4), action="start unit web", result="unit started", seconds=1),
    )
    agent.backend.start = PodStart(seen_at=T0, running_at=at(4), ready_at=at(5), steps=steps)
    text = kubeletx("describe", "pod", "web", "--timeline").stdout
    line = "bound 2 ms, image web failed (ErrImagePull), started 1.0 s, ready 5.0 s"
    assert re.search(f"^Start: +{re.escape(line)}$", text, re.MULTILINE)
    bind, image, container, ready, times = text.partition("Timeline:\n")[2].splitlines()
    assert max(map(len, (bind, image, container, ready, times))) <= cells
    assert re.match("  image web +✗+ ", image)
    assert container.index("█") > image.rindex("✗")
    assert ready.index("█") == container.rindex("█") + 1
    assert times.split()[:2] == ["|0", "ms"]


def test_a_pod_older_than_the_agent_has_no_start(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    text = kubeletx("describe", "pod", "web", "--timeline").stdout
    assert "Start: " not in text
    assert "Timeline:  <unknown: the pod is older than this process of the agent>" in text


def test_a_runtime_is_described_with_what_it_can_do(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.details["one"] = RuntimeDetail(
        runtime=runtime(),
        capabilities={"Exec": True, "Checkpoint": False},
        traits={"remote": False},
        handlers=("runc",),
    )
    for args in (("runtime", "describe", "one"), ("describe", "runtime/one")):
        text = kubeletx(*args).stdout
        assert "  Exec:        yes\n  Checkpoint:  no\n" in text
        assert re.search(r"^Handlers: +runc$", text, re.MULTILINE)
    assert json.loads(kubeletx("runtime", "describe", "one", "-o", "json").stdout)["handlers"] == ["runc"]


@pytest.mark.parametrize(("is_default", "shown"), [(True, "yes, of type container"), (False, "no")])
def test_a_runtime_says_whether_its_image_service_is_the_default(
    agent: Any, kubeletx: Run, is_default: bool, shown: str
) -> None:
    service = ImageServiceView(
        name="one", workload_type="container", url="unix:///a", store="s1", is_default=is_default
    )
    one = msgspec.structs.replace(runtime(), image_service=service)
    agent.backend.runtimes = {"one": one}
    agent.backend.details["one"] = RuntimeDetail(runtime=one, store_id="s1")
    assert re.search(
        rf"^Default Images: +{shown}$", kubeletx("runtime", "describe", "one").stdout, re.MULTILINE
    )
    expected = {
        "name": "one", "workloadType": "container", "url": "unix:///a", "store": "s1", "isDefault": is_default,
        "capacityBytes": None, "availableBytes": None,
    }  # fmt: skip
    described = json.loads(kubeletx("runtime", "describe", "one", "-o", "json").stdout)
    assert described["runtime"]["imageService"] == expected
    (listed,) = json.loads(kubeletx("get", "runtimes", "-o", "json").stdout)["items"]
    assert listed["imageService"] == expected


def test_the_node_is_described_with_runtimes_and_pods(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.put(pod())
    text = kubeletx("describe", "node").stdout
    assert "Pods (1 in total)" in text
    assert kubeletx("describe", "node", "else").exit_code == 1


def test_pods_are_described_in_any_form_of_kubectl(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("web"))
    agent.backend.put(pod("db"))
    for args in (("pod/web", "pods/db"), ("po", "web", "db"), ("pods",), ("pods", "-A=true")):
        result = kubeletx("describe", *args)
        assert result.exit_code == 0
        assert result.stdout.count("Name:  ") == 2, args
