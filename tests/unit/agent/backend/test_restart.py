"""``kubeletx restart``, on a whole agent with fake runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import Conflict, InvalidPod, NotFound, Unsupported
from kubeletx.kube.types.core import (
    Container,
    EphemeralContainer,
    PodStatus,
    ResourceRequirements,
    VirtualMachine,
)
from kubeletx.server.views import PodTarget
from kubeletx.testing.fake_backend import Behaviour
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")
TWO = (Container(name="main", image="busybox"), Container(name="side", image="busybox"))


@pytest.fixture
def agent(tmp_path: Path) -> AgentModel:
    return AgentModel(tmp_path, names=("one", "kvm"))


async def restarts(agent: AgentModel) -> dict[str, int]:
    (pod,) = await agent.parts.backend.pods.list_pods()
    status: PodStatus = pod.status
    return {each.name: each.restart_count for each in status.container_statuses}


async def test_a_restart_of_one_container_is_counted_and_the_others_run_on(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod(containers=TWO, restart_policy="OnFailure"))
        assert await agent.done(backend.pods.restart(WEB, "side", 60)) == ("side",)
        assert await restarts(agent) == {"main": 0, "side": 1}
        assert await agent.done(backend.pods.restart(WEB, "", 60)) == ("main", "side")
        assert await restarts(agent) == {"main": 1, "side": 2}


async def test_a_restart_does_not_wait_for_the_back_off_of_a_crash_loop(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        for _ in range(4):
            await agent.until(lambda: len(agent.alive()) == 1)
            fake = agent.runtimes["one"].backend
            (unit,) = [unit.id for unit in fake.find_units({}) if unit.state.is_alive]
            fake.exit_unit(unit, 1)
            await agent.until(lambda: not agent.alive())
        before = agent.clock.monotonic()
        await agent.done(backend.pods.restart(WEB, "", 60))
        assert agent.clock.monotonic() - before < 5


@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_restart_is_carried_out_after_a_restart_of_the_agent(
    agent: AgentModel, is_ended: bool
) -> None:
    async with agent.running() as backend:
        fake = agent.runtimes["one"].backend
        fake.behave = lambda _: Behaviour(stop_seconds=20, stop_exit_code=0)
        await agent.apply(a_pod(containers=TWO, restart_policy="OnFailure"))
        await agent.done(backend.pods.restart(WEB, "side", 0))
    if is_ended:
        (unit,) = [one for one in fake.find_units({}) if one.name == "side"]
        fake.exit_unit(unit.id, 0)
    async with agent.running():
        await agent.until(lambda: len(agent.alive()) == 2 and len(fake.units) == 3)
        await agent.until(lambda: agent.phase("web") == "Running")
        assert await restarts(agent) == {"main": 0, "side": 1}


async def test_what_cannot_be_restarted_is_refused(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod(restart_policy="Never"))
        with pytest.raises(Conflict, match="no container of pod default/web can be restarted"):
            await backend.pods.restart(WEB, "", 60)
        with pytest.raises(NotFound, match="container db is not in pod web"):
            await backend.pods.restart(WEB, "db", 60)
        limits = {"cpu": "1", "memory": "1Gi"}
        machine = VirtualMachine(name="main", image="busybox", resources=ResourceRequirements(limits=limits))
        await agent.apply(a_pod("vm", containers=(), virtual_machine=machine))
        with pytest.raises(Unsupported, match="use 'kubeletx vm reboot vm'"):
            await backend.pods.restart(PodTarget(namespace="default", name="vm"), "", 60)


async def test_an_ephemeral_container_is_added_to_an_applied_pod_and_kept(agent: AgentModel) -> None:
    debugger = EphemeralContainer(name="debugger", image="busybox")
    async with agent.running() as backend:
        with pytest.raises(InvalidPod, match="can only be added to a pod that exists"):
            await backend.pods.apply_pod(a_pod(ephemeral_containers=(debugger,)))
        await agent.apply(a_pod())
        assert (await backend.pods.apply_pod(a_pod(ephemeral_containers=(debugger,)))).action == "configured"
        await agent.until(lambda: len(agent.alive()) == 2)
        assert (await backend.pods.apply_pod(a_pod())).action == "unchanged"
    async with agent.running() as backend:
        (pod,) = await backend.pods.list_pods()
        assert [each.name for each in pod.spec.ephemeral_containers] == ["debugger"]
        assert len(agent.alive()) == 2
