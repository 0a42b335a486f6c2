"""Events, alarms and metrics: what an administrator sees of flows."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, SystemClock, first_of
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.admin.events import FAILED, REPEATED, EventWriter, FlowEvent, events_of
from kubeletx.remedy.admin.metrics import RemedyMetrics, parse_address, served
from kubeletx.remedy.decisions import Change, FlowFacts
from kubeletx.remedy.model import (
    FenceFlow,
    FenceMethod,
    FenceOperation,
    FlowStatus,
    FlowStep,
    MethodResult,
    NodeFence,
    RemedyOutcome,
    RemedySettings,
    RemedyTask,
)
from kubeletx.remedy.planner import FlowPlan
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until

from .trial import START, new_node

NODE = new_node("n1", START)
SETTINGS = RemedySettings(alarm_count=3, alarm_period=3600)


def record(status: FlowStatus, *, terminal: bool = False, starts: tuple[int, ...] = ()) -> NodeFence:
    """Return a record. `starts`: minutes since each of its flows began."""
    flow = FenceFlow(status=status.value, terminal=terminal, message="off failed")
    return NodeFence(
        metadata=ObjectMeta(uid="uid of the record"),
        node="n1",
        step=FlowStep.POWER.value,
        flow=flow,
        starts=tuple(START - timedelta(minutes=ago) for ago in starts),
        problems={'Ready="False"': len(starts)},
    )


def found(before: NodeFence | None, after: NodeFence) -> list[tuple[str, bool]]:
    plan = FlowPlan(
        node=NODE, fence=before, facts=FlowFacts(node=NODE, settings=SETTINGS), decision=Change(after, "")
    )
    return [(one.reason, one.is_warning) for one in events_of(plan, Change(after, "it changed"), START)]


# --- events ---


def test_each_change_is_an_event_named_by_step_and_status() -> None:
    running, done = record(FlowStatus.RUNNING), record(FlowStatus.DONE)
    assert found(running, done) == [("PowerManagementDone", False)]


def test_a_flow_that_fails_for_good_raises_an_alarm_once() -> None:
    error, failed = record(FlowStatus.ERROR), record(FlowStatus.ERROR, terminal=True)
    assert found(error, failed)[1:] == [(FAILED, True)]
    assert found(failed, failed)[1:] == []


@pytest.mark.parametrize(
    ("starts", "alarms"),
    [((0, 20, 40), [(REPEATED, True)]), ((0, 20), []), ((0, 20, 61), [])],
    ids=["three in an hour", "two", "one is too old"],
)
def test_repeated_problems_raise_an_alarm(starts: tuple[int, ...], alarms: list[tuple[str, bool]]) -> None:
    begun = record(FlowStatus.NEW, starts=starts)
    for before in (None, record(FlowStatus.FINAL)):
        assert found(before, begun)[1:] == alarms
    assert found(begun, begun)[1:] == [], "only when a flow begins"


async def test_equal_events_are_counted_also_after_a_restart(tmp_path: Path) -> None:
    with ApiServerDouble(tmp_path) as api:
        client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=SystemClock())
        event = FlowEvent("n1", "uid", record(FlowStatus.ERROR), "PowerManagementError", "x" * 3000, True)

        def counts() -> dict[str, int]:
            items = api.admin.list("events", "default")["items"]
            return {item["involvedObject"]["kind"]: item["count"] for item in items}

        for count in (1, 2):
            writer = EventWriter(client, FakeClock(start=START), f"controller-{count}")
            writer.put(event)
            wanted = {"Node": count, "NodeFence": count}
            await first_of("events", writer.run(), until(partial(lambda wanted: counts() == wanted, wanted)))
        (about_node,) = [
            item
            for item in api.admin.list("events", "default")["items"]
            if item["involvedObject"]["kind"] == "Node"
        ]
        assert about_node["involvedObject"]["uid"] == "n1"
        assert (about_node["type"], len(about_node["message"])) == ("Warning", 1024)
        await client.close()


# --- metrics ---


def metrics(fences: dict[str, NodeFence], problem: str = "") -> RemedyMetrics:
    return RemedyMetrics(
        fences=lambda: fences,
        settings=lambda: SETTINGS,
        now=lambda: START,
        leads=lambda: True,
        problem=lambda: problem,
        configuration_problems=lambda: 2,
    )


def test_metrics_show_records_and_what_this_process_did() -> None:
    failed = record(FlowStatus.ERROR, terminal=True, starts=(1, 2, 3))
    made = metrics({"n1": failed, "n2": replace(record(FlowStatus.FINAL), node="n2")})
    made.changed(Change(failed, "it failed"))
    made.alarmed(FAILED)
    task = RemedyTask(
        node=NODE,
        fence=failed,
        step=FlowStep.POWER,
        method=FenceMethod(name="off", kind="agent"),
        operation=FenceOperation(id="1"),
    )
    made.ended(task, RemedyOutcome(result=MethodResult.UNKNOWN), 3.0)
    lines = set(made.text().decode().splitlines())
    assert lines >= {
        "kubeletx_remedy_leader 1",
        "kubeletx_remedy_configuration_problems 2",
        'kubeletx_remedy_flows{status="Error",step="Power-Management"} 1',
        'kubeletx_remedy_failed{node="n1"} 1',
        'kubeletx_remedy_recent_problems{node="n1"} 3',
        'kubeletx_remedy_repeating{node="n1"} 1',
        'kubeletx_remedy_problems_total{node="n1",reason="Ready=\\"False\\""} 3',
        'kubeletx_remedy_changes_total{status="Error",step="Power-Management"} 1',
        'kubeletx_remedy_methods_total{method="off",result="unknown",step="Power-Management"} 1',
        'kubeletx_remedy_method_duration_seconds_sum{method="off",step="Power-Management"} 3.0',
        'kubeletx_remedy_alarms_total{reason="NodeRemedyFailed"} 1',
    }


@pytest.mark.parametrize(("problem", "status"), [("", 200), ("the API server does not answer", 503)])
async def test_metrics_and_health_are_served(problem: str, status: int) -> None:
    async with (
        served(metrics({}, problem), "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        async with session.get("/healthz") as answer:
            assert (answer.status, (await answer.text()).strip()) == (status, problem or "ok")
        async with session.get("/metrics") as answer:
            assert "kubeletx_remedy_connected" in await answer.text()


@pytest.mark.parametrize("text", ["9299x", "host:", ":70000", "1.2.3.4"])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--metrics-address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"), [(":9299", ("", 9299)), ("[::1]:9", ("::1", 9)), ("9299", ("", 9299))]
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
