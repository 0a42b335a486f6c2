"""After a restart of the agent with a runtime down, no verb and no column reports what no one can know."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.api import StreamRequest, Unavailable
from kubeletx.kube.pod_summary import summarise
from kubeletx.server.views import LogOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path)


async def test_streams_and_logs_say_that_the_runtime_does_not_answer(model: AgentModel) -> None:
    async with model.running():
        await model.apply(a_pod())
    model.runtimes["one"].backend.kill()
    async with model.running() as backend:
        await model.until(lambda: model.phase("web") == "Running")
        verbs = {
            "logs": lambda: backend.pods.open_logs(WEB, LogOptions()),
            "exec": lambda: backend.pods.exec(WEB, "", StreamRequest(command=("true",))),
            "attach": lambda: backend.pods.attach(WEB, "", StreamRequest()),
            "port-forward": lambda: backend.pods.port_forward(WEB, 80),
        }
        for verb in verbs.values():
            with pytest.raises(Unavailable, match="runtime one does not answer"):
                await verb()
        (pod,) = await backend.pods.list_pods()
        assert summarise(pod, datetime.now(UTC)).status == "RuntimeUnreachable"
        model.runtimes["one"].backend.revive()
        await model.until(lambda: model.parts.manager.find("default", "web").facts.outage is None)
        await model.until(lambda: model.parts.manager.find("default", "web").facts.snapshot is not None)
        (pod,) = await backend.pods.list_pods()
        assert summarise(pod, datetime.now(UTC)).status == "Running"
