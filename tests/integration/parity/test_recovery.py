"""Recovery (X5, W5, A6): a new agent takes over what runs, from the labels and annotations of the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from tests.integration.support.bench import (
    Bench,
    condition,
    container_id,
    is_running,
    one_container,
    restarts,
    status,
    terminated,
    until,
)

MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


def forget(bench: Bench) -> None:
    """Kill the agent, lose its database, start again."""
    bench.agent.kill()
    for path in bench.agent.root_dir.glob("kubeletx.db*"):
        path.unlink()
    bench.agent.start()


def fate(pod: Pod) -> dict[str, Any]:
    """What must be the same afterwards, by container."""
    everything = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        one.name: (one.container_id, one.restart_count, one.state.running, one.state.terminated)
        for one in everything
    }


def put_all(bench: Bench) -> None:
    """One pod of each kind of life."""
    volumes = [{"name": "v", "emptyDir": {}}]
    init = [
        one_container("first", "echo x >> /v/inits", **MOUNT),
        one_container("helper", restartPolicy="Always"),
    ]
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 15}
    bench.put(
        "whole",
        container={**MOUNT, "readinessProbe": probe, "livenessProbe": probe},
        spec={"initContainers": init, "volumes": volumes},
    )
    again = "echo x >> /v/runs; [ $(wc -l < /v/runs) -gt 1 ] && exec sleep 1000; exit 3"
    bench.put("restarted", again, container=MOUNT, spec={"volumes": volumes})
    bench.put("done", "exit 0", spec={"restartPolicy": "Never"})
    bench.put("failed", "exit 9", spec={"restartPolicy": "Never"})
    bench.put("memory", container=MOUNT, spec={"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]})
    bench.put("on-b", runtime="containerd-b")


def settled(bench: Bench) -> dict[str, Pod]:
    bench.until("restarted", lambda pod: restarts(pod) == 1 and is_running(pod))
    bench.ended("done")
    bench.ended("failed")
    return {name: bench.pod(name) for name in ("restarted", "done", "failed")} | {
        name: bench.ready(name) for name in ("whole", "memory", "on-b")
    }


@pytest.mark.parametrize("how", ["killed", "without its database"])
def test_everything_goes_on_as_it_was(bench: Bench, how: str) -> None:
    put_all(bench)
    before = settled(bench)
    bench.exec("memory", "echo kept > /v/file")
    if how == "killed":
        bench.agent.kill()
        bench.agent.start()
    else:
        forget(bench)
    after = settled(bench)
    for name, pod in before.items():
        assert after[name].metadata.uid == pod.metadata.uid
        assert fate(after[name]) == fate(pod), name
        assert after[name].status.phase == pod.status.phase
        assert after[name].status.pod_ip == pod.status.pod_ip or pod.status.phase != "Running"
        assert len(bench.sandboxes(name)) == 1
    assert bench.exec("memory", "cat /v/file") == "kept\n"
    assert bench.exec("whole", "cat /v/inits") == "x\n"
    assert terminated(after["failed"]).exit_code == 9
    last = status(after["restarted"]).last_state.terminated
    assert last is not None
    assert last.exit_code == 3


def test_what_died_meanwhile_is_restarted_once(bench: Bench) -> None:
    bench.put("dies")
    before = bench.ready("dies")
    bench.agent.kill()
    with bench.agent.lab["containerd-a"].cri() as calls:
        calls.call("StopContainer", container_id=container_id(before), timeout=0)
    bench.agent.start()
    after = bench.until("dies", lambda pod: restarts(pod) == 1 and is_running(pod))
    assert status(after).last_state.terminated is not None
    assert len(bench.units("dies")) == 2


def test_a_pod_is_not_unready_for_a_moment(bench: Bench) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 15}
    bench.put("steady", container={"readinessProbe": probe})
    before = bench.ready("steady")
    bench.agent.restart()
    after = bench.pod("steady")
    assert condition(after, "Ready").status == "True"
    assert condition(after, "Ready").last_transition_time == condition(before, "Ready").last_transition_time


def test_a_manifest_that_changed_meanwhile_replaces_its_pod(bench: Bench) -> None:
    bench.put("changes", metadata={"labels": {"v": "1"}})
    first = bench.ready("changes")
    bench.agent.kill()
    bench.put("changes", metadata={"labels": {"v": "2"}})
    bench.agent.start()
    second = bench.until("changes", lambda pod: pod.metadata.labels == {"v": "2"} and is_running(pod))
    assert second.metadata.uid != first.metadata.uid
    with bench.agent.lab["containerd-a"].cri() as calls:
        until(
            lambda: first.metadata.uid not in {box.metadata.uid for box in calls.sandboxes()},
            "end of the old pod",
        )
