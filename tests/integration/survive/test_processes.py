"""Processes die that should not: the pause process, a shim, everything at once; and the agent stops in any weather."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api.names import RUNTIMES_READY
from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import (
    CriCalls,
    Lab,
    PrivateAgent,
    PrivateContainerd,
    image_ref,
    is_ready,
    pod_manifest,
    put_manifest,
)
from kubeletx_testing.lab.process import list_pids
from kubeletx_testing.lab.sweep import list_processes
from tests.integration.support.survival import (
    JSON,
    QUICK,
    agent_id,
    complaints,
    container,
    containers_of,
    events,
    ids,
    life,
    logged,
    node_condition,
    ready_sandboxes,
    sandboxes_of,
    traces,
    until,
)

MakeAgent = Callable[..., PrivateAgent]


def pause_pid(calls: CriCalls, sandbox_id: str) -> int:
    answer = calls.call("PodSandboxStatus", pod_sandbox_id=sandbox_id, verbose=True)
    return int(json.loads(answer.info["info"])["pid"])


def shim_pids(lab: Lab, containerd: PrivateContainerd) -> list[int]:
    """Shims of one containerd."""
    found = []
    for pid in list_processes(containerd.directory):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if line[0].rpartition(b"/")[2].startswith(b"containerd-shim"):
            found.append(pid)
    return found


def changed(old: Pod) -> Callable[[Pod], bool]:
    """Ready again with another container."""
    return lambda pod: is_ready(pod) and ids(pod)["main"] != ids(old)["main"]


def test_a_pod_whose_pause_process_dies_gets_a_new_sandbox_and_keeps_its_identity(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd, lab: Lab
) -> None:
    put_manifest(manifests, pod_manifest("shaken", runtime="containerd-a"))
    before = agent.wait_for("shaken")
    (_, sandbox), *_ = sandboxes_of(lab, agent_id(agent))
    with containerd_a.cri() as calls:
        os.kill(pause_pid(calls, sandbox.id), signal.SIGKILL)
    after = agent.wait_for("shaken", changed(before))
    assert after.uid == before.uid
    assert container(after).restart_count == 1
    assert ready_sandboxes(lab, agent) == {after.name: ["containerd-a"]}
    until(lambda: traces(agent, pods=agent.pods()) == [], "nothing of the old sandbox is in the way")
    (manifests / "shaken.json").unlink()
    agent.wait_gone("shaken")
    assert traces(agent) == []


def test_pods_whose_shims_are_all_killed_come_back_once(
    agent: PrivateAgent, manifests: Path, containerd_a: PrivateContainerd, lab: Lab
) -> None:
    for number in range(3):
        put_manifest(manifests, pod_manifest(f"pod-{number}", runtime="containerd-a"))
    before = {f"pod-{number}": agent.wait_for(f"pod-{number}") for number in range(3)}
    put_manifest(manifests, pod_manifest("calm", runtime="containerd-b"))
    calm = agent.wait_for("calm")
    for pid in shim_pids(lab, containerd_a):
        os.kill(pid, signal.SIGKILL)
    for name, old in before.items():
        after = agent.wait_for(name, changed(old), timeout_seconds=60)
        assert after.uid == old.uid
    assert life(agent.wait_for("calm")) == life(calm)
    found = ready_sandboxes(lab, agent)
    assert {name: found[f"{name}-lab"] for name in before} == {name: ["containerd-a"] for name in before}


def test_after_a_reboot_every_pod_runs_again_exactly_once(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    """Everything is killed at once: agent, daemons, shims, containers; then daemons and agent start."""
    agent = make_agent()
    agent.start()
    for name in lab.containerds:
        put_manifest(manifests, pod_manifest(f"on-{name}", runtime=name))
    put_manifest(manifests, pod_manifest("done", command=["true"], spec={"restartPolicy": "Never"}))
    before = {f"on-{name}": agent.wait_for(f"on-{name}") for name in lab.containerds}
    agent.wait_for("done", lambda pod: pod.status.phase == "Succeeded")
    until((agent.root_dir / "kubeletx.db").exists, "history")
    agent.stop()
    shims = [pid for one in lab.containerds.values() for pid in shim_pids(lab, one)]
    pids = set(list_pids())
    for one in lab.containerds.values():
        one.kill()
    children = [pid for pid in pids if _parent(pid) in shims]
    for pid in (*shims, *children):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for one in lab.containerds.values():
        one.start_daemon()
    agent.start()
    for name, old in before.items():
        after = agent.wait_for(name, changed(old), timeout_seconds=60)
        assert after.uid == old.uid
        assert container(after).restart_count == 1
    done = agent.wait_for("done", lambda pod: pod.status.phase == "Succeeded")
    assert container(done).restart_count == 0
    assert {name: len(where) for name, where in ready_sandboxes(lab, agent).items() if name != done.name} == {
        pod.name: 1 for pod in before.values()
    }
    running = [
        one.metadata.name
        for _, one in containers_of(lab, agent_id(agent))
        if one.state == cri.CONTAINER_RUNNING
    ]
    assert running == ["main"] * len(before)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.parametrize("hung", ["containerd-a", "containerd-b"])
def test_the_agent_stops_in_time_while_a_runtime_hangs_with_calls_in_flight(
    make_agent: MakeAgent, manifests: Path, lab: Lab, hung: str
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    put_manifest(manifests, pod_manifest("there", runtime=hung))
    before = agent.wait_for("there")
    lab[hung].pause()
    try:
        for number in range(4):
            put_manifest(manifests, pod_manifest(f"stuck-{number}", runtime=hung))
        until(lambda: len(agent.pods()) == 5, "the pods are known")
        agent.stop(grace_seconds=15)  # after which it would be killed without a word
        assert logged(agent, "Stopped")
        agent.start()
        agent.wait_for("there", lambda pod: pod.status.phase == "Running")
    finally:
        lab[hung].resume()
    for number in range(4):
        agent.wait_for(f"stuck-{number}", timeout_seconds=60)
    assert life(agent.wait_for("there")) == life(before)
    assert {name: len(where) for name, where in ready_sandboxes(lab, agent).items()} == {
        pod.name: 1 for pod in agent.pods()
    }


def test_readiness_changes_once_for_each_outage_with_its_reason(
    make_agent: MakeAgent, containerd_b: PrivateContainerd
) -> None:
    agent = make_agent(flags=(JSON, QUICK, "--node-readiness-policy=all"))
    agent.start()
    until(lambda: node_condition(agent, "Ready")[0] == "True", "ready")
    for _ in range(2):
        containerd_b.kill()
        until(lambda: node_condition(agent, "Ready")[0] == "False", "not ready")
        assert "containerd-b" in node_condition(agent, "Ready")[2]
        containerd_b.start_daemon()
        until(lambda: node_condition(agent, "Ready")[0] == "True", "ready again")

    def reported() -> dict[str, int]:
        return {
            one["reason"]: one.get("count", 1)
            for one in events(agent)
            if one["reason"] in ("NodeReady", "NodeNotReady")
        }

    until(lambda: reported() == {"NodeReady": 3, "NodeNotReady": 2}, "an event for each change")
    assert len(logged(agent, "Changed node readiness")) == 5
    assert [line["event"] for line in complaints(agent)] == ["Lost runtime"] * 2
    assert node_condition(agent, RUNTIMES_READY)[0] == "True"


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_commands_that_need_a_lost_runtime_fail_at_once_and_logs_can_still_be_read(
    make_agent: MakeAgent, manifests: Path, containerd_b: PrivateContainerd, how: str
) -> None:
    agent = make_agent(flags=(QUICK,))
    agent.start()
    script = "echo hello; trap 'exit 0' TERM; while :; do sleep 0.1; done"
    put_manifest(manifests, pod_manifest("there", runtime="containerd-b", command=["sh", "-c", script]))
    agent.wait_for("there")
    until(lambda: "hello" in agent.cli("logs", "there-lab").stdout, "the log")
    containerd_b.kill() if how == "killed" else containerd_b.pause()
    fails(agent, "exec", "there-lab", "--", "true", seconds=60)  # before anybody has noticed
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "False", "the outage is told")
    fails(agent, "exec", "there-lab", "--", "true")
    fails(agent, "attach", "there-lab")
    fails(agent, "image", "pull", image_ref("web"), "--runtime", "containerd-b")
    assert "hello" in agent.cli("logs", "there-lab").stdout
    for command in (
        ("get", "pods"),
        ("get", "runtimes"),
        ("get", "node"),
        ("get", "images"),
        ("describe", "pod", "there-lab"),
        ("top", "pods"),
        ("top", "runtimes"),
    ):
        shown = agent.cli(*command, timeout_seconds=20)
        assert shown.returncode == 0, shown.stderr
    containerd_b.start_daemon() if how == "killed" else containerd_b.resume()
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "True", "its end is told")
    assert agent.cli("exec", "there-lab", "--", "true").returncode == 0


def fails(agent: PrivateAgent, *arguments: str, seconds: float = 20) -> None:
    """The command ends in time with words that name the lost runtime."""
    failed = agent.cli(*arguments, timeout_seconds=seconds)
    assert failed.returncode != 0, failed.stdout
    assert "containerd-b" in failed.stderr
    assert "Traceback" not in failed.stderr
