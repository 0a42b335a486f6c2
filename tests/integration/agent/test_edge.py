"""An agent with real pods beside a guardian with simulated slots, which reboots the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.guardian import REBOOTED, LabGuardian
from tests.integration.support.survival import node_condition, until

MakeAgent = Callable[..., PrivateAgent]
SLOW_END = ["sh", "-c", "trap 'sleep 1; exit 0' TERM; while true; do sleep 0.1; done"]


@pytest.fixture
def guardian(tmp_path: Path) -> Iterator[LabGuardian]:
    one = LabGuardian(tmp_path / "edge")
    yield one
    one.end()


def test_pods_end_before_the_guardian_reboots_the_node(
    guardian: LabGuardian, make_agent: MakeAgent, manifests: Path
) -> None:
    agent = make_agent(flags=(f"--health-run-dir={guardian.run}",))
    agent.start()
    until(lambda: node_condition(agent, "kubeletx.io/EdgeHealthy")[0] == "True", "the guardian's verdict")
    put_manifest(manifests, pod_manifest("web", command=SLOW_END))
    agent.wait_for("web-lab")
    guardian.order("reboot", "--reason", "test")
    assert guardian.process.wait(120) == REBOOTED
    (pod,) = agent.pods()
    assert (pod.status.phase, pod.status.reason) == ("Failed", "Terminated")
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert ended.exit_code == 0
    assert guardian.status["AllDomainsHalted"] is True
    assert guardian.status["RebootReason"] == "test"
    assert node_condition(agent, "Ready")[0] == "False"
    guardian.start()
    until(lambda: not guardian.status["DeviceReboot"], "the next boot")
    until(lambda: node_condition(agent, "Ready")[0] == "True", "an open node")
