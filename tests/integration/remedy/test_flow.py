"""The controller as a process, with an API server and real fence agents."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.waiting import block_until
from tests.integration.support.clusters import API_SERVERS, ApiServer, running_api
from tests.integration.support.remedy_lab import RemedyLab


@pytest.fixture(scope="module", params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    yield from running_api(request.param, tmp_path_factory.mktemp("api"))


@pytest.fixture
def lab(api: ApiServer, tmp_path: Path) -> Iterator[RemedyLab]:
    made = RemedyLab(api, tmp_path)
    yield made
    made.end()


def test_a_lost_node_loses_its_pods_only_after_it_was_off_and_comes_back(lab: RemedyLab) -> None:
    for name in ("worker-1", "worker-2", "worker-3"):
        lab.add_node(name)
    lab.add_pod("web-0", "worker-1")
    lab.add_pod("web-1", "worker-2")
    lab.start()
    lab.ready("worker-1", "Unknown")
    lab.await_state("worker-1", "Power-Management/Done")
    block_until(lambda: lab.pods("worker-1") == [])
    assert lab.node("worker-1")["spec"]["unschedulable"]
    (plan,) = json.loads(lab.ask("plan", "-o", "json"))
    assert (plan["node"], plan["step"], plan["status"]) == ("worker-1", "Power-Management", "Done")
    lab.ready("worker-1", "True", boot_id="boot 2")
    lab.await_state("worker-1", "Recovery/Final")
    messages = [line["message"] for line in lab.fence("worker-1")["history"]]
    steps = ("off: fence_dummy: off, verified by status", "1 pods released", "on: fence_dummy: on")
    places = [next(n for n, text in enumerate(messages) if text.startswith(step)) for step in steps]
    assert places == sorted(places)
    history = lab.ask("history", "worker-1")
    assert "1 pods released" in history
    wanted = {"IsolationNew", "PowerManagementDone", "RecoveryFinal"}
    block_until(lambda: wanted <= {one["reason"] for one in api_events(lab)})
    assert lab.pods("worker-2") == ["web-1"]
    assert "unschedulable" not in lab.node("worker-1")["spec"]


def test_the_plan_names_another_actor_that_treats_the_node(lab: RemedyLab) -> None:
    for name in ("box-1", "box-2", "box-3"):
        lab.add_node(name)
    lab.ready("box-1", "Unknown")
    spec = {"holderIdentity": "NodeHealthCheck-workers", "leaseDurationSeconds": 600}
    lab.api.admin.create(
        "leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "node-box-1"},
            "spec": spec,
        },
        "kube-system",
    )
    (plan,) = [row for row in json.loads(lab.ask("plan", "-o", "json")) if row["node"] == "box-1"]
    assert any("NodeHealthCheck-workers" in reason for reason in plan["blockedBy"])


def test_a_power_action_of_a_killed_controller_is_not_repeated(lab: RemedyLab) -> None:
    lab.slow_agent()
    for name in ("node-1", "node-2", "node-3"):
        lab.add_node(name)
    lab.add_pod("db-0", "node-1")
    first = lab.start("--leader-elect=false")
    lab.ready("node-1", "Unknown")
    block_until(lambda: lab.actions)
    first.kill()  # while the agent switches the machine off
    first.wait()
    assert lab.pods("node-1") == ["db-0"]
    lab.start("--leader-elect=false")
    lab.await_state("node-1", "Power-Management/Done")
    block_until(lambda: lab.pods("node-1") == [])
    assert lab.actions == ["off", "on"]
    lab.ready("node-1", "True", boot_id="boot 2")
    lab.await_state("node-1", "Recovery/Final")
    assert "unschedulable" not in lab.node("node-1")["spec"]


def api_events(lab: RemedyLab) -> list[dict[str, str]]:
    items: list[dict[str, str]] = lab.api.admin.list("events", "default")["items"]
    return items


@pytest.mark.long
def test_controllers_that_are_killed_at_any_moment_switch_a_machine_off_once(lab: RemedyLab) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    lab.slow_agent()
    names = [f"victim-{number}" for number in range(10)]
    for name in names:
        lab.add_node(name)
    for done, name in enumerate(names, 1):
        lab.add_pod(f"{name}-pod", name)
        lab.ready(name, "Unknown")
        while lab.state(name) != "Power-Management/Done" or lab.pods(name):
            process = lab.start("--leader-elect=false")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(1.5, 12))
            process.kill()
            process.wait()
            if "on" not in lab.actions[2 * done - 2 :] and lab.machine(name).read_text() == "on":
                assert lab.pods(name), "a pod was deleted before its machine was off"
        assert lab.actions == ["off", "on"] * done
        lab.ready(name, "True", boot_id=f"boot of {name}")
        lab.start("--leader-elect=false")
        lab.await_state(name, "Recovery/Final")
        lab.end()
        assert "unschedulable" not in lab.node(name)["spec"]
