"""The host shuts down under an agent with real pods: a private bus and a double of logind stand for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from kubeletx_testing.lab.logind import PrivateLogind
from tests.integration.support.survival import JSON, condition, logged, node_condition, reasons, until

MakeAgent = Callable[..., PrivateAgent]
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 5s
shutdownGracePeriodCriticalPods: 2s
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PrivateLogind]:
    directory = tmp_path / "bus"
    directory.mkdir()
    with PrivateLogind(directory) as one:
        yield one


@pytest.fixture
def agent(host: PrivateLogind, make_agent: MakeAgent, tmp_path: Path) -> PrivateAgent:
    """One that holds the host back, started."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    one = make_agent(flags=(JSON, f"--config={config}"), env={"DBUS_SYSTEM_BUS_ADDRESS": host.address})
    one.start()
    host.said("locked shutdown kubeletx delay")
    return one


def phase(agent: PrivateAgent, name: str) -> str | None:
    """None before the pod is known."""
    return next((pod.status.phase for pod in agent.pods() if pod.name == name), None)


def pod_of(agent: PrivateAgent, name: str) -> Pod:
    return next(pod for pod in agent.pods() if pod.name == name)


def ended_at(pod: Pod) -> float:
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert ended.finished_at is not None
    return ended.finished_at.timestamp()


def test_the_host_waits_until_pods_have_ended_in_order(
    host: PrivateLogind, agent: PrivateAgent, manifests: Path
) -> None:
    put_manifest(manifests, pod_manifest("user"))
    put_manifest(manifests, pod_manifest("system", spec={"priorityClassName": "system-node-critical"}))
    for name in ("user-lab", "system-lab"):
        agent.wait_for(name)
    host.tell("begin")
    host.tell("wait")
    host.said("released")
    user, system = pod_of(agent, "user-lab"), pod_of(agent, "system-lab")
    for pod in (user, system):
        assert (pod.status.phase, pod.status.reason) == ("Failed", "Terminated")
        assert pod.status.message == "Pod was terminated in response to imminent node shutdown."
        assert condition(pod, "DisruptionTarget") == "True"
    assert ended_at(user) <= ended_at(system)
    status, reason, message = node_condition(agent, "Ready")
    assert (status, reason) == ("False", "KubeletNotReady")
    assert "node is shutting down" in message
    assert "Shutdown" in reasons(agent, "lab")
    put_manifest(manifests, pod_manifest("late"))
    until(lambda: phase(agent, "late-lab") == "Failed", "the refusal of a new pod")
    assert pod_of(agent, "late-lab").status.reason == "NodeShutdown"
    agent.stop()
    assert logged(agent, "Pods have ended; the host may go on")
    host.tell("cancel")
    agent.start()
    host.said("locked shutdown kubeletx delay")
    for name in ("user-lab", "system-lab", "late-lab"):
        agent.wait_for(name)


def test_a_drain_ends_all_pods_until_it_is_undone(make_agent: MakeAgent, manifests: Path) -> None:
    agent = make_agent()
    agent.start()
    put_manifest(manifests, pod_manifest("web"))
    agent.wait_for("web-lab")
    for lines in (["pod default/web-lab ended"], []):
        drained = agent.cli("drain", "--all")
        assert drained.stdout.splitlines() == [*lines, "all pods have ended; new ones are refused"]
    assert (phase(agent, "web-lab"), pod_of(agent, "web-lab").status.reason) == ("Failed", "Terminated")
    put_manifest(manifests, pod_manifest("late"))
    until(lambda: phase(agent, "late-lab") == "Failed", "the refusal of a new pod")
    assert pod_of(agent, "late-lab").status.reason == "NodeShutdown"
    assert agent.cli("drain", "--undo").stdout == "new pods are accepted\n"
    put_manifest(manifests, pod_manifest("next"))
    agent.wait_for("next-lab")


def test_ending_the_service_ends_no_pod_and_gives_the_lock_back(
    host: PrivateLogind, agent: PrivateAgent, manifests: Path
) -> None:
    put_manifest(manifests, pod_manifest("web"))
    before = agent.wait_for("web-lab")
    agent.stop()
    host.tell("wait")
    host.said("released")
    agent.start()
    after = agent.wait_for("web-lab")
    assert after.status.container_statuses[0].container_id == before.status.container_statuses[0].container_id
