"""A runtime that is silent for a moment, as at its restart, stays ready; the grace is a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.node.status import is_ready
from tests.unit.agent.agent_model import AgentModel, a_pod


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path, ("one",))


async def silence(model: AgentModel, seconds: float) -> list[bool]:
    """Whether the runtime was ready at each moment of an outage of this length, and until it answers again."""
    ready: list[bool] = []
    handle = model.parts.registry.get("one")
    model.runtimes["one"].backend.kill()
    end = model.clock.monotonic() + seconds

    def is_over() -> bool:
        ready.append(handle.state.ready and is_ready(model.parts.backend.node._reporter.conditions))
        return model.clock.monotonic() >= end

    await model.until(is_over)
    model.runtimes["one"].backend.revive()
    asked = model.runtimes["one"].counts["health"]
    await model.until(lambda: model.runtimes["one"].counts["health"] > asked and handle.state.ready)
    return ready


@pytest.mark.parametrize("seconds", [1.0, 3.0, 8.0])
async def test_a_short_silence_changes_no_readiness(model: AgentModel, seconds: float) -> None:
    async with model.running():
        await model.apply(a_pod())
        assert all(await silence(model, seconds))
        assert "NodeNotReady" not in [one.reason for one in await model.parts.backend.node.list_events()]


async def test_a_silence_beyond_the_grace_is_an_outage(model: AgentModel) -> None:
    async with model.running():
        await model.apply(a_pod())
        ready = await silence(model, 20.0)
        assert ready[0]
        assert not ready[-1]


async def test_the_grace_is_a_setting(model: AgentModel) -> None:
    model.configure("runtimes", health_grace_seconds=0.0)
    async with model.running():
        await model.apply(a_pod())
        assert not all(await silence(model, 8.0))
