"""An agent with real pods beside a guardian with simulated slots, which reboots the node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.survival import node_condition, until

MakeAgent = Callable[..., PrivateAgent]
REBOOTED = 75
SLOW_END = ["sh", "-c", "trap 'sleep 1; exit 0' TERM; while true; do sleep 0.1; done"]


class LabGuardian:
    """A guardian whose ticks take 500 ms, so that it waits at most 15 s for the end of pods."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        self.slots = directory / "slots"
        self._places = (f"--run-dir={self.run}", f"--persist-dir={directory / 'persist'}")
        self._command = (sys.executable, "-m", "kubeletx.health", *self._places)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [*self._command, f"--slots=file:{self.slots}", "--tick=500ms"], stdin=subprocess.DEVNULL
        )
        return self.process

    def order(self, *words: str) -> None:
        subprocess.run([*self._command, *words], check=True, capture_output=True, timeout=60)

    @property
    def status(self) -> dict[str, object]:
        path = self.run / "nodeagent" / "NodeAgentStatus" / "nodeagent.json"
        return json.loads(path.read_bytes()) if path.exists() else {}


@pytest.fixture
def guardian(tmp_path: Path) -> Iterator[LabGuardian]:
    one = LabGuardian(tmp_path / "edge")
    yield one
    one.process.terminate()
    one.process.wait(30)


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
