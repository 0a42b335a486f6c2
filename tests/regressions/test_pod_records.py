"""A row of a pod that is gone does not stay in the database for ever, whenever the agent was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import PodUid
from kubeletx.kube.types.core import ObjectMeta, Pod, PodStatus
from tests.unit.agent.agent_model import AgentModel, a_pod


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path, ("one",))


async def rows(model: AgentModel) -> set[str]:
    records = model.parts.pods.services.records
    records.flush()
    return {str(uid) for uid in await model.done(records.load())}


async def test_rows_that_an_earlier_life_left_are_removed_once_all_sources_have_spoken(
    model: AgentModel,
) -> None:
    async with model.running():
        kept = await model.apply(a_pod())
        records = model.parts.pods.services.records
        left = Pod(metadata=ObjectMeta(name="left", namespace="default", uid=PodUid("left")))
        records.note_pod(PodUid("left"), "applied", left)  # its binding is deleted, its row is not: a SIGKILL
        records.note_status(PodUid("left"), PodStatus(phase="Running"))
        assert await rows(model) == {str(kept.uid), "left"}
    async with model.running():
        for _ in range(100):
            await model.until(lambda: True)
            if await rows(model) == {str(kept.uid)}:
                break
        assert await rows(model) == {str(kept.uid)}
        assert model.alive() == ["web"]


async def test_rows_of_pods_that_wait_or_ended_stay(model: AgentModel) -> None:
    async with model.running() as backend:
        waiting = (await backend.pods.apply_pod(a_pod("waits", runtime="none"))).pod
        assert await rows(model) == {str(waiting.uid)}
    async with model.running():
        began = model.clock.monotonic()
        await model.until(lambda: model.clock.monotonic() > began + 10)
        assert await rows(model) == {str(waiting.uid)}
