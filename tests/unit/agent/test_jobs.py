"""A Job without a cluster, on a whole agent with fake runtimes."""

from __future__ import annotations

from pathlib import Path

from kubeletx.kube.manifests.load import load_all
from tests.unit.agent.agent_model import AgentModel

JOB = b"""
apiVersion: batch/v1
kind: Job
metadata: {name: web}
spec:
  backoffLimit: 2
  template: {spec: {restartPolicy: OnFailure, containers: [{name: main, image: busybox}, {name: side, image: busybox}]}}
"""


async def test_a_job_fails_after_its_backoff_limit_also_across_a_restart(tmp_path: Path) -> None:
    agent = AgentModel(tmp_path)

    def alive() -> int:
        return len(agent.alive())

    def fail(name: str = "main") -> None:
        (unit,) = [
            one
            for one in agent.runtimes["one"].backend.find_units({})
            if one.state.is_alive and one.name == name
        ]
        agent.runtimes["one"].backend.exit_unit(unit.id, 1)

    async with agent.running():
        await agent.apply(load_all(JOB, "x").pods[0].pod)
        for name in ("main", "side"):
            fail(name)
            await agent.until(lambda: alive() == 1)
            await agent.until(lambda: alive() == 2)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web") == "Running")
        fail()
        await agent.until(lambda: agent.phase("web") == "Failed")
        (pod,) = await backend.pods.list_pods()
        assert pod.status.reason == "BackoffLimitExceeded"
        await agent.until(lambda: not agent.alive())
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web") == "Failed")
        assert not agent.alive()
