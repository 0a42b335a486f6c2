"""A runtime stops, hangs or restarts: its pods are kept, the others do not notice, it is reported once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api.names import RUNTIME_REACHABLE, RUNTIMES_READY
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import (
    Lab,
    PrivateAgent,
    PrivateContainerd,
    bound_runtime,
    is_ready,
    pod_manifest,
    put_manifest,
)
from tests.integration.support.survival import (
    JSON,
    QUICK,
    complaints,
    condition,
    container,
    cpu_seconds,
    events,
    holds,
    ids,
    life,
    logged,
    node_condition,
    reasons,
    until,
)

MakeAgent = Callable[..., PrivateAgent]


@pytest.fixture
def json_agent(make_agent: MakeAgent) -> PrivateAgent:
    """An agent with short deadlines whose log is JSON."""
    agent = make_agent(flags=(JSON, "--runtime-request-timeout=5s", QUICK))
    agent.start()
    return agent


@contextmanager
def outage(containerd: PrivateContainerd, how: str) -> Iterator[None]:
    """The daemon is hung, killed, or stopped in order, and comes back at the end."""
    if how == "hung":
        containerd.pause()
    elif how == "killed":
        containerd.kill()
    else:
        containerd.stop_daemon()
    try:
        yield
    finally:
        if how == "hung":
            containerd.resume()
        else:
            containerd.start_daemon()


def reachable(pod: Pod) -> bool:
    return condition(pod, RUNTIME_REACHABLE) != "False"


def unreachable(pod: Pod) -> bool:
    return condition(pod, RUNTIME_REACHABLE) == "False"


def calls_of(agent: PrivateAgent, runtime: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(agent.get(f"/v1/runtimes/{runtime}"))["agentCalls"]
    return found


@pytest.mark.parametrize("how", ["hung", "killed", "stopped"])
def test_an_outage_keeps_the_pods_and_is_reported_once(
    json_agent: PrivateAgent, manifests: Path, lab: Lab, how: str
) -> None:
    agent, lost = json_agent, lab["containerd-b"]
    for number in range(3):
        put_manifest(manifests, pod_manifest(f"lost-{number}", runtime="containerd-b"))
    before = {f"lost-{number}": agent.wait_for(f"lost-{number}") for number in range(3)}
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "True", "all runtimes ready")
    with outage(lost, how):
        until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "False", "the outage is told")
        assert "containerd-b" in node_condition(agent, RUNTIMES_READY)[2]
        assert node_condition(agent, "Ready")[0] == "True"
        for name, old in before.items():
            kept = agent.wait_for(name, unreachable)
            assert (kept.status.phase, kept.status.pod_ip) == ("Running", old.status.pod_ip)
            assert life(kept) == life(old)
        path = put_manifest(manifests, pod_manifest("other", runtime="containerd-a"))
        agent.wait_for("other")
        path.unlink()
        agent.wait_gone("other")
        late = put_manifest(manifests, pod_manifest("late", runtime="containerd-b"))
        waits = agent.wait_for("late", lambda pod: bool(pod.status.container_statuses))
        assert waits.status.phase == "Pending"
        assert container(waits).container_id is None
        plain = put_manifest(manifests, pod_manifest("plain"))
        assert bound_runtime(agent.wait_for("plain")) == "containerd-a"
        plain.unlink()
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "True", "the end is told")
    for name, old in before.items():
        after = agent.wait_for(name, lambda pod: is_ready(pod) and reachable(pod))
        assert life(after) == life(old)
    agent.wait_for("late")
    late.unlink()
    agent.wait_gone("late")
    assert [line["event"] for line in complaints(agent)] == ["Lost runtime"]
    assert len(logged(agent, "Reached runtime", runtime="containerd-b")) == 2  # at the start, and now
    reported = [one for one in events(agent) if one["involvedObject"].get("name") == "containerd-b"]
    assert [
        (one["reason"], one.get("count", 1)) for one in reported if one["reason"] == "RuntimeNotReady"
    ] == [("RuntimeNotReady", 1)]
    assert "NodeNotReady" not in reasons(agent, agent.node_name)


def test_no_call_to_a_hung_runtime_delays_the_other_and_few_are_made(
    json_agent: PrivateAgent, manifests: Path, containerd_b: PrivateContainerd
) -> None:
    agent = json_agent
    for number in range(8):
        put_manifest(manifests, pod_manifest(f"hung-{number}", runtime="containerd-b"))
    for number in range(8):
        agent.wait_for(f"hung-{number}")
    with outage(containerd_b, "hung"):
        until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "False", "the outage is told", seconds=30)
        calls, busy, began = calls_of(agent, "containerd-b"), cpu_seconds(agent.pid), time.monotonic()
        for number in range(8):  # half of its pods are to end meanwhile: they wait and say so
            if number % 2:
                (manifests / f"hung-{number}.json").unlink()
        for number in range(6):
            put_manifest(manifests, pod_manifest(f"swift-{number}", runtime="containerd-a"))
        for number in range(6):
            agent.wait_for(f"swift-{number}")
        assert agent.pod("hung-1") is not None
        holds(lambda: agent.pod("hung-1"), "a pod on a hung runtime is not reported gone", seconds=2)
        made = {
            method: count - calls.get(method, 0)
            for method, count in calls_of(agent, "containerd-b").items()
            if count != calls.get(method, 0)
        }
        assert set(made) <= {"health", "open", "version", "close"}, made
        assert sum(made.values()) < 6 + time.monotonic() - began, made
        assert cpu_seconds(agent.pid) - busy < 4
        usage = agent.usage()
        assert "containerd-b" in usage.missing
    for number in range(8):
        if number % 2:
            agent.wait_gone(f"hung-{number}")
        else:
            agent.wait_for(f"hung-{number}", lambda pod: is_ready(pod) and reachable(pod))
    assert not logged(agent, "Action failed with a bug")


def test_probes_go_on_where_they_can_and_what_is_decided_waits_and_says_so(
    json_agent: PrivateAgent, manifests: Path, containerd_b: PrivateContainerd, tmp_path: Path
) -> None:
    """DECISIONS 24: commands neither pass nor fail, the network is asked, restarts and ends wait."""
    agent, www = json_agent, tmp_path / "www"
    www.mkdir()
    for name in ("ready", "alive"):
        (www / name).touch()
    every = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}

    def put(name: str, **probes: Any) -> Path:
        parts = {"volumeMounts": [{"name": "www", "mountPath": "/www"}], **probes}
        spec = {"volumes": [{"name": "www", "hostPath": {"path": str(www)}}]}
        command = ("sh", "-c", "trap 'exit 0' TERM; httpd -p 8080 -h /www; while :; do sleep 0.2; done")
        manifest = pod_manifest(name, runtime="containerd-b", command=command, container=parts, spec=spec)
        return put_manifest(manifests, manifest)

    def get(path: str, **more: Any) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": 8080}, **every, **more}

    command = {"exec": {"command": ["true"]}, **every}
    put("commands", readinessProbe=command, livenessProbe=command)
    put("asked", readinessProbe=get("/ready"))
    put("sick", livenessProbe=get("/alive", initialDelaySeconds=2))
    leaving = put("leaving")
    before = {name: agent.wait_for(name) for name in ("commands", "asked", "sick", "leaving")}
    unhealthy = reasons(agent, "commands-lab").count("Unhealthy")
    with outage(containerd_b, "hung"):
        for name in before:
            agent.wait_for(name, unreachable)
        (www / "ready").unlink()
        agent.wait_for("asked", lambda pod: condition(pod, "Ready") == "False")
        (www / "ready").touch()
        agent.wait_for("asked", lambda pod: condition(pod, "Ready") == "True")
        (www / "alive").unlink()
        agent.wait_for("sick", lambda pod: "waiting for it: restart of main" in outage_message(pod))
        leaving.unlink()
        agent.wait_for("leaving", lambda pod: "waiting for it: deletion" in outage_message(pod))
        for name, old in before.items():
            assert life(agent.wait_for(name, unreachable)) == life(old)
    after = agent.wait_for("commands", reachable)
    assert (is_ready(after), life(after)) == (True, life(before["commands"]))
    assert ready_since(after) == ready_since(before["commands"])
    assert reasons(agent, "commands-lab").count("Unhealthy") == unhealthy
    agent.wait_gone("leaving")
    agent.wait_for("sick", lambda pod: container(pod).restart_count == 1)
    (www / "alive").touch()
    agent.wait_for("sick")
    assert life(agent.wait_for("asked", reachable)) == life(before["asked"])
    assert [line["event"] for line in complaints(agent)] == ["Lost runtime"]


def outage_message(pod: Pod) -> str:
    """What the pod's condition says on its runtime."""
    found = [one.message for one in pod.status.conditions if one.type == RUNTIME_REACHABLE]
    return (found[0] if found else "") or ""


def ready_since(pod: Pod) -> Any:
    """When the pod's Ready condition changed."""
    return next(one.last_transition_time for one in pod.status.conditions if one.type == "Ready")


def test_an_agent_started_during_an_outage_keeps_the_pods_and_finds_them_again(
    json_agent: PrivateAgent, manifests: Path, containerd_b: PrivateContainerd
) -> None:
    agent = json_agent
    put_manifest(manifests, pod_manifest("there", runtime="containerd-b"))
    gone = put_manifest(manifests, pod_manifest("unwanted", runtime="containerd-b"))
    before = agent.wait_for("there")
    agent.wait_for("unwanted")
    until((agent.root_dir / "kubeletx.db").exists, "history is written")
    agent.stop()
    with outage(containerd_b, "killed"):
        gone.unlink()
        agent.start()
        kept = agent.wait_for("there", unreachable)
        assert kept.status.phase == "Running"
        assert ids(kept) == ids(before)
        holds(lambda: agent.pod("unwanted"), "an unreachable pod is not reported gone", seconds=2)
    after = agent.wait_for("there", lambda pod: is_ready(pod) and reachable(pod))
    assert life(after) == life(before)
    agent.wait_gone("unwanted")


def test_a_pod_deleted_by_force_during_an_outage_is_gone_and_cleared_when_the_runtime_returns(
    json_agent: PrivateAgent, lab: Lab, tmp_path: Path
) -> None:
    agent, lost = json_agent, lab["containerd-b"]
    file = tmp_path / "stuck.json"
    file.write_text(json.dumps(pod_manifest("stuck", runtime="containerd-b")))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    agent.wait_for("stuck")
    with outage(lost, "hung"):
        until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "False", "the outage is told")
        gone = agent.cli("delete", "pod", "stuck", "--grace-period=0", "--force", timeout_seconds=60)
        assert gone.returncode == 0, gone.stderr
        assert agent.pod("stuck") is None
        agent.kill()
        agent.start()
        assert agent.pod("stuck") is None
    with lost.cri() as calls:
        until(lambda: calls.sandboxes() == [], "the left-over is cleared")
    assert agent.pod("stuck") is None


def test_a_runtime_that_restarts_many_times_costs_no_pod(
    json_agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    agent = json_agent
    put_manifest(manifests, pod_manifest("calm", runtime="containerd-a"))
    before = agent.wait_for("calm")
    for number in range(3):
        containerd_a.restart()
        path = put_manifest(manifests, pod_manifest(f"new-{number}", runtime="containerd-a"))
        agent.wait_for(f"new-{number}")
        path.unlink()
        agent.wait_gone(f"new-{number}")
    assert life(agent.wait_for("calm", lambda pod: is_ready(pod) and reachable(pod))) == life(before)
