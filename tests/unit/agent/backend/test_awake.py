"""Exec, attach and port-forward of pods that stand by, on a whole agent with fake runtimes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletx.api import Conflict, Internal, NotFound, SupportsStandby, TimedOut, UnitState
from kubeletx.server.backend import AdminBackend
from kubeletx.server.views import LogOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")


@pytest.fixture
def agent(tmp_path: Path) -> AgentModel:
    return AgentModel(tmp_path, names=("one",))


def states(agent: AgentModel) -> set[UnitState]:
    return {unit.state for unit in agent.runtimes["one"].backend.find_units({}) if unit.state.is_alive}


def files(agent: AgentModel) -> dict[Path, int]:
    """The overrides files of all pods, with the times of their last writes."""
    root = agent.config.root_dir / "pods"
    return {one: one.stat().st_mtime_ns for one in root.rglob("*") if one.is_file()}


async def frozen(agent: AgentModel, backend: AdminBackend, verb: str = "standby") -> None:
    await agent.apply(a_pod("web"))
    await agent.done(backend.standby.set_standby(WEB, verb, 60))


async def used(agent: AgentModel, backend: AdminBackend) -> set[UnitState]:
    """Use the pod as exec does; return its states meanwhile."""
    async with backend.pods.awake(WEB):
        return states(agent)


@pytest.mark.parametrize(
    ("verb", "state"), [("standby", UnitState.PAUSED), ("hibernate", UnitState.SUSPENDED)]
)
async def test_a_frozen_pod_runs_while_a_command_lasts_and_rests_again_without_a_write(
    agent: AgentModel, verb: str, state: UnitState
) -> None:
    async with agent.running() as backend:
        await frozen(agent, backend, verb)
        before = files(agent)
        assert await agent.done(used(agent, backend)) == {UnitState.RUNNING}
        await agent.until(lambda: states(agent) == {state})
        assert files(agent) == before


async def test_the_pod_runs_until_the_last_of_several_streams_ends(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await frozen(agent, backend)
        one, two = backend.pods.awake(WEB), backend.pods.awake(WEB)
        await agent.done(one.__aenter__())
        await agent.done(two.__aenter__())
        await one.__aexit__(None, None, None)
        await agent.clock.run_for(20)
        assert states(agent) == {UnitState.RUNNING}
        with pytest.raises(TimedOut, match="1 open streams or other users keep it awake"):
            await agent.done(backend.standby.set_standby(WEB, "standby", 5))
        await two.__aexit__(None, None, None)
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})


async def test_a_woken_pod_runs_on_for_the_delay_after_its_last_command(agent: AgentModel) -> None:
    agent.configure("pods", standby_delay_seconds=30.0)
    async with agent.running() as backend:
        await frozen(agent, backend)
        assert await agent.done(used(agent, backend)) == {UnitState.RUNNING}
        await agent.clock.run_for(20)
        assert await agent.done(used(agent, backend)) == {UnitState.RUNNING}
        await agent.clock.run_for(20)
        assert states(agent) == {UnitState.RUNNING}
        assert agent.runtimes["one"].counts["thaw"] == 1
        await agent.clock.run_for(11)
        await agent.until(lambda: states(agent) == {UnitState.PAUSED}, seconds=1)


async def test_a_command_during_a_freeze_waits_until_its_thaw(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        stuck = agent.runtimes["one"].script("freeze", hang=True)
        resting = asyncio.create_task(backend.standby.set_standby(WEB, "standby", 5))
        await agent.until(lambda: agent.runtimes["one"].counts["freeze"] == 1)
        using = asyncio.create_task(used(agent, backend))
        await agent.clock.run_for(1)
        assert not using.done()
        stuck.release()
        assert await agent.done(using) == {UnitState.RUNNING}
        assert agent.runtimes["one"].counts["thaw"] == 1
        await agent.done(resting)


async def test_a_pod_that_does_not_thaw_fails_the_command_with_the_reason(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await frozen(agent, backend)
        agent.runtimes["one"].script("thaw", error=Internal("the freezer is stuck"))
        with pytest.raises(Conflict, match="cannot thaw pod default/web: the freezer is stuck"):
            await agent.done(used(agent, backend))
        agent.runtimes["one"].scripts.clear()
        agent.runtimes["one"].script("thaw", hang=True)
        with pytest.raises(TimedOut, match="pod default/web is standby and did not thaw within 30s"):
            await agent.done(used(agent, backend))


async def test_a_setting_leaves_frozen_pods_frozen(agent: AgentModel) -> None:
    agent.configure("pods", standby_streams="refuse")
    async with agent.running() as backend:
        await frozen(agent, backend)
        with pytest.raises(
            Conflict, match="pod default/web is standby; wake it with 'kubeletx pod activate'"
        ):
            await agent.done(used(agent, backend))
        assert agent.runtimes["one"].counts["thaw"] == 0
        await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert await agent.done(used(agent, backend)) == {UnitState.RUNNING}


async def test_logs_lists_and_history_do_not_thaw(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await frozen(agent, backend)
        with pytest.raises(NotFound, match="there is no log"):  # the fake runtime writes none
            async for _ in await backend.pods.open_logs(WEB, LogOptions()):
                pass
        await backend.pods.list_pods()
        await backend.pods.pod_history(WEB)
        await agent.clock.run_for(20)
        assert agent.runtimes["one"].counts["thaw"] == 0
        assert states(agent) == {UnitState.PAUSED}


async def test_pods_that_cannot_be_frozen_are_used_at_once(agent: AgentModel) -> None:
    agent.without = (SupportsStandby,)
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        async with backend.pods.awake(WEB):
            pass
        with pytest.raises(NotFound):
            backend.pods.awake(PodTarget(namespace="default", name="other"))


async def test_a_process_killed_while_its_pod_is_frozen_is_seen_and_the_pod_rests_again(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await frozen(agent, backend)
        fake = agent.runtimes["one"].backend
        (unit,) = [one for one in fake.find_units({}) if one.state.is_alive]
        fake.exit_unit(unit.id, 137)
        await agent.until(lambda: len(fake.find_units({})) == 2 and states(agent) == {UnitState.PAUSED})
        (after,) = [one for one in fake.find_units({}) if one.state.is_alive]
        assert after.id != unit.id
