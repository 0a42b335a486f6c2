"""Verbs of virtual machines that cannot be carried out say so, and leave nothing behind that is tried for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Conflict, InvalidPod, NotFound, Unavailable, UnitState, Unsupported
from kubeletx.api.names import RUNTIME_UNSUPPORTED
from kubeletx.kube.types.core import Nic, Pod, ResourceRequirements, VirtualMachine
from kubeletx.server.views import MachineSize, NicRequest, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

VM = PodTarget(namespace="default", name="vm")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path, names=("one", "kvm"))


def a_machine(power: str | None = None, **spec: Any) -> Pod:
    machine = VirtualMachine(
        name="vm",
        image="busybox",
        power_spec=power,
        resources=ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"}),
    )
    return a_pod("vm", containers=(), virtual_machine=machine, **spec)


def unit_of(agent: AgentModel) -> Any:
    backend = agent.runtimes["kvm"].backend
    return backend.unit(backend.find_unit("vm"))


NO_NETWORK = InvalidPod(
    field="nics[data].subnetName",
    problem="'blue' is unknown",
    fix="use one of: red",
    reason=RUNTIME_UNSUPPORTED,
)


async def test_an_interface_that_can_never_be_attached_is_refused_and_forgotten(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("attach_nic", error=NO_NETWORK)
        wanted = NicRequest(name="data", subnet_name="blue")
        with pytest.raises(
            Conflict,
            match=r"cannot attach interface data to machine default/vm: .*'blue' is unknown; use one of: red",
        ):
            await agent.done(backend.machines.attach_nic(VM, wanted))
        calls = agent.runtimes["kvm"].counts["attach_nic"]
        await agent.clock.run_for(120)
        assert agent.runtimes["kvm"].counts["attach_nic"] == calls == 1
        assert [one.name for one in await backend.machines.list_nics(VM)] == ["eth0"]


async def test_an_interface_that_cannot_be_attached_now_is_tried_with_back_off(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("attach_nic", error=Unavailable("address 10.0.0.9 is taken"))
        with pytest.raises(
            Conflict,
            match=r"10.0.0.9 is taken; the agent tries again; to stop it, run 'kubeletx vm nic detach",
        ):
            await agent.done(backend.machines.attach_nic(VM, NicRequest(name="data")))
        await agent.clock.run_for(60)
        assert 4 <= agent.runtimes["kvm"].counts["attach_nic"] <= 8
        assert agent.runtimes["kvm"].counts["list_nics"] < 20
        listed = {one.name: one for one in await backend.machines.list_nics(VM)}
        assert (listed["data"].state, listed["data"].message) == ("wanted", "address 10.0.0.9 is taken")


async def test_an_interface_that_fails_holds_up_no_other(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine(nics=(Nic(name="eth0"), Nic(name="old"))))
        runtime = agent.runtimes["kvm"]
        runtime.script("attach_nic", key="bad", error=Unavailable("no such port"))
        with pytest.raises(Conflict, match="no such port"):
            await agent.done(backend.machines.attach_nic(VM, NicRequest(name="bad")))
        found = await agent.done(backend.machines.attach_nic(VM, NicRequest(name="good")))
        assert {one.name: one.state for one in found}["good"] == "attached"
        found = await agent.done(backend.machines.detach_nic(VM, "old"))
        assert "old" not in {one.name for one in found}
        found = await agent.done(backend.machines.detach_nic(VM, "bad"))
        assert {one.name for one in found} == {"eth0", "good"}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (NicRequest(name="a b"), r"nics\[1\].name: 'a b' is not an interface name"),
        (NicRequest(name="x" * 16), r"nics\[1\].name"),
        (NicRequest(name="data", ip_address="10.0.0.300"), r"nics\[1\].ipAddress: '10.0.0.300'"),
        (NicRequest(name="data", ip_address="10.0.0.7"), r"'10.0.0.7' is given twice"),
    ],
)
async def test_words_of_an_interface_are_checked_before_it_is_ordered(
    agent: AgentModel, wanted: NicRequest, words: str
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine(nics=(Nic(name="first", subnet_name="blue", ip_address="10.0.0.7"),)))
        with pytest.raises(InvalidPod, match=words):
            await agent.done(backend.machines.attach_nic(VM, wanted))
        assert agent.runtimes["kvm"].counts["attach_nic"] == 0


async def test_an_interface_of_a_machine_that_is_off_waits_for_it(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await agent.done(backend.machines.machine_power(VM, "stop", 60))
        (view,) = await agent.done(backend.machines.attach_nic(VM, NicRequest(name="data")))
        assert (view.state, view.message) == (
            "wanted",
            "machine default/vm is off; it is attached when it runs",
        )
        await agent.done(backend.machines.machine_power(VM, "start", 60))
        await agent.until(lambda: "data" in unit_of(agent).nics)


async def test_a_size_that_the_machine_can_never_have_is_refused_and_forgotten(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        never = Unsupported("the guest is emulated and has 2 processors, 1 asked")
        agent.runtimes["kvm"].script("update_resources", error=never)
        with pytest.raises(Conflict, match="cannot resize machine default/vm: the guest is emulated"):
            await agent.done(backend.machines.resize_machine(VM, MachineSize(cpu="2")))
        calls = agent.runtimes["kvm"].counts["update_resources"]
        await agent.clock.run_for(60)
        assert agent.runtimes["kvm"].counts["update_resources"] == calls == 1
        view = await backend.machines.find_machine(VM)
        assert view.limits == {"cpu": "1", "memory": "1Gi"}


async def test_a_snapshot_that_is_not_there_cannot_be_deleted(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await agent.done(backend.machines.create_snapshot(VM, "one", False))
        with pytest.raises(NotFound, match="has no snapshot 'two'; snapshots: one"):
            await agent.done(backend.machines.delete_snapshot(VM, "two"))
        assert agent.runtimes["kvm"].counts["delete_snapshot"] == 0


@pytest.mark.parametrize("verb", ["pause", "suspend", "resume"])
async def test_a_machine_that_is_off_is_neither_paused_nor_suspended(agent: AgentModel, verb: str) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await agent.done(backend.machines.machine_power(VM, "stop", 60))
        with pytest.raises(
            Conflict, match=f"cannot {verb} machine default/vm: it is off; use 'kubeletx vm start'"
        ):
            await agent.done(backend.machines.machine_power(VM, verb, 60))
        await agent.clock.run_for(10)
        assert unit_of(agent).summary.state is UnitState.EXITED
        assert (await backend.machines.find_machine(VM)).power == "off"


def reboot_is_delayed() -> bool:
    return any(task.get_name().startswith("reboot-") for task in asyncio.all_tasks())


async def test_a_reboot_that_is_to_come_can_be_cancelled(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        with pytest.raises(NotFound, match="no pending reboot"):
            await agent.done(backend.machines.cancel_reboot(VM))
        waiting = asyncio.ensure_future(backend.machines.reboot_machine(VM, 300))
        await agent.until(reboot_is_delayed)
        with pytest.raises(Conflict, match="under way already; 'kubeletx vm reboot --cancel'"):
            await agent.done(backend.machines.reboot_machine(VM, 0))
        await agent.done(backend.machines.cancel_reboot(VM))
        with pytest.raises(
            Conflict, match="reboot of machine default/vm was cancelled: cancelled by command"
        ):
            await agent.done(waiting)
        await agent.clock.run_for(400)
        assert agent.runtimes["kvm"].counts["reboot"] == 0
        (one,) = (await backend.machines.find_machine(VM)).operations
        assert (one.verb, one.outcome) == ("reboot", "cancelled")


async def test_a_machine_that_is_stopped_does_not_reboot_later(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        waiting = asyncio.ensure_future(backend.machines.reboot_machine(VM, 300))
        await agent.until(reboot_is_delayed)
        await agent.done(backend.machines.machine_power(VM, "stop", 60))
        await agent.done(backend.machines.machine_power(VM, "start", 60))
        with pytest.raises(Conflict, match="the machine was stopped"):
            await agent.done(waiting)
        await agent.clock.run_for(400)
        assert agent.runtimes["kvm"].counts["reboot"] == 0
