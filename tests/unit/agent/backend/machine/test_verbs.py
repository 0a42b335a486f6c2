"""Verbs of virtual machines, on a whole agent with fake runtimes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidConfig,
    InvalidPod,
    NotFound,
    Resources,
    SupportsNics,
    SupportsResize,
    SupportsSnapshots,
    TimedOut,
    Unavailable,
    UnitId,
    UnitState,
    Unsupported,
)
from kubeletx.api.streams import StreamRequest
from kubeletx.kube.types.core import (
    Nic,
    Pod,
    ResourceRequirements,
    VirtualMachine,
    VirtualMachineResizePolicy,
)
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.overrides import PodOverrides
from kubeletx.server.views import DeleteOptions, MachineSize, NicRequest, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

VM = PodTarget(namespace="default", name="vm")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path, names=("one", "kvm"))


def a_machine(power: str | None = None, **spec: Any) -> Pod:
    machine = VirtualMachine(
        name="testVM",
        image="busybox",
        power_spec=power,
        resources=ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"}),
    )
    return a_pod("vm", containers=(), virtual_machine=machine, **spec)


def unit_of(agent: AgentModel) -> Any:
    backend = agent.runtimes["kvm"].backend
    return backend.unit(backend.find_unit("testvm"))


def worker_of(agent: AgentModel) -> PodWorker:
    worker = agent.parts.manager.find("default", "vm")
    assert worker is not None
    return worker


def overrides_of(worker: PodWorker) -> PodOverrides | None:
    overrides = worker.facts.overrides
    return overrides if isinstance(overrides, PodOverrides) else None


async def test_power_verbs_reach_their_state_and_show_what_they_stand_above(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        verbs = backend.machines
        for verb, state, wanted, above in (
            ("pause", UnitState.PAUSED, "paused", "Running"),
            ("resume", UnitState.RUNNING, "running", ""),
            ("suspend", UnitState.SUSPENDED, "suspended", "Running"),
            ("stop", UnitState.EXITED, "off", "Running"),
            ("start", UnitState.RUNNING, "running", ""),
        ):
            view = await agent.done(verbs.machine_power(VM, verb, 60))
            assert unit_of(agent).summary.state is state
            assert (view.power, view.overrides) == (wanted, above)
        assert agent.runtimes["kvm"].counts["create_unit"] == 1


async def test_a_wish_outlives_the_agent_and_the_verbs_work_at_once(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await agent.done(backend.machines.machine_power(VM, "pause", 60))
    async with agent.running() as backend:
        with pytest.raises(Conflict, match="it is paused; use 'kubeletx vm resume' first"):
            await backend.machines.reboot_machine(VM, 0)  # at once: what was asked is not read yet
        await agent.clock.run_for(20)
        assert unit_of(agent).summary.state is UnitState.PAUSED
        assert (await backend.machines.find_machine(VM)).overrides == "Running"
        await agent.done(backend.machines.machine_power(VM, "resume", 60))
        assert unit_of(agent).summary.state is UnitState.RUNNING


async def test_a_power_verb_that_fails_says_why_and_one_that_hangs_says_it_is_still_wanted(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        runtime = agent.runtimes["kvm"]
        runtime.script("pause", error=Conflict("the guest is busy"))
        with pytest.raises(Conflict, match="the guest is busy; the agent retries"):
            await agent.done(backend.machines.machine_power(VM, "pause", 60))
        runtime.scripts.clear()
        await agent.until(lambda: unit_of(agent).summary.state is UnitState.PAUSED)
        stuck = runtime.script("suspend", hang=True)
        with pytest.raises(TimedOut, match="not suspended after 1s; the agent keeps trying"):
            await agent.done(backend.machines.machine_power(VM, "suspend", 1))
        stuck.release()
        await agent.until(lambda: unit_of(agent).summary.state is UnitState.SUSPENDED)


async def test_a_power_verb_that_a_later_one_replaced_says_so_at_once(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("pause", hang=True)
        first = asyncio.create_task(backend.machines.machine_power(VM, "pause", 3600))
        await agent.until(lambda: agent.runtimes["kvm"].counts["pause"])
        second = asyncio.create_task(backend.machines.machine_power(VM, "resume", 3600))
        with pytest.raises(
            Conflict, match=r"cannot pause machine default/vm: .* replaced by a later command"
        ):
            await agent.done(first)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_verbs_on_a_container_pod_are_refused_in_words(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        web = PodTarget(namespace="default", name="web")
        verbs = backend.machines
        for call in (
            verbs.machine_power(web, "pause", 1),
            verbs.reboot_machine(web, 0),
            verbs.create_snapshot(web, "s", False),
            verbs.list_nics(web),
            verbs.machine_screenshot(web),
            verbs.resize_machine(web, MachineSize(cpu="2")),
        ):
            with pytest.raises(Unsupported, match="'kubeletx vm' is for virtual machines"):
                await call


async def test_exec_with_a_terminal_is_refused_and_points_to_the_console(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        with pytest.raises(Unsupported, match="kubeletx attach -it"):
            await backend.pods.exec(VM, "", StreamRequest(command=("sh",), stdin=True, tty=True))


async def test_a_reboot_waits_out_its_delay_and_counts_as_a_restart(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        began = agent.clock.monotonic()
        view = await agent.done(backend.machines.reboot_machine(VM, 30))
        assert agent.clock.monotonic() - began >= 30
        assert [(one.verb, one.detail, one.outcome) for one in view.operations] == [
            ("reboot", "after 30s", "done")
        ]
        assert agent.runtimes["kvm"].counts["reboot"] == 1

        def restarts() -> int:
            status = worker_of(agent).facts.previous_status
            assert status is not None
            assert status.virtual_machine_status is not None
            return status.virtual_machine_status.restart_count

        await agent.until(lambda: restarts() == 1)
        await agent.done(backend.machines.machine_power(VM, "pause", 60))
        with pytest.raises(Conflict, match="it is paused; use 'kubeletx vm resume' first"):
            await backend.machines.reboot_machine(VM, 0)


async def test_a_reboot_that_is_to_come_ends_with_its_pod(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        worker = worker_of(agent)
        call = asyncio.ensure_future(backend.machines.reboot_machine(VM, 86_400))
        await agent.until(lambda: bool((overrides_of(worker) or PodOverrides()).operations))
        waiting = [one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("reboot-")]
        assert set(waiting) == {f"reboot-{worker.uid}-delay"}
        began = agent.clock.monotonic()
        await backend.pods.delete_pod(VM, DeleteOptions(grace_seconds=1))
        with pytest.raises(Conflict, match="was deleted before its machine was to reboot"):
            await agent.done(call)
        assert agent.clock.monotonic() - began < 60
        assert agent.runtimes["kvm"].counts["reboot"] == 0
        assert not [one for one in asyncio.all_tasks() if one.get_name().startswith("reboot-")]


async def test_reboots_of_a_machine_still_count_when_it_is_made_again(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await agent.done(backend.machines.reboot_machine(VM, 0))
        fake = agent.runtimes["kvm"].backend
        fake.exit_unit(fake.find_unit("testvm"), 1)

        def restarts() -> int:
            status = worker_of(agent).facts.previous_status
            machine = status.virtual_machine_status if status is not None else None
            return machine.restart_count if machine is not None and machine.state == "Running" else 0

        await agent.until(lambda: restarts() == 2)
        assert unit_of(agent).summary.attempt == 2


async def test_a_reboot_that_the_agent_did_not_see_end_is_unknown_and_not_done_again(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("reboot", hang=True)
        call = asyncio.ensure_future(backend.machines.reboot_machine(VM, 0))
        await agent.until(lambda: agent.runtimes["kvm"].counts["reboot"] == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    async with agent.running() as backend:
        await agent.until(lambda: worker_of(agent).facts.overrides is not None)
        await agent.clock.run_for(20)
        (one,) = (await backend.machines.find_machine(VM)).operations
        assert (one.verb, one.outcome) == ("reboot", "unknown")
        assert agent.runtimes["kvm"].counts["reboot"] == 0
        assert "OperationUnknown" in [event.reason for event in await backend.node.list_events()]


async def test_snapshots_are_made_listed_restored_and_forgotten(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        verbs = backend.machines
        made = await agent.done(verbs.create_snapshot(VM, "before", True))
        assert (made.name, made.with_memory) == ("before", True)
        with pytest.raises(InvalidConfig, match="not a name"):
            await verbs.create_snapshot(VM, "a/b", False)
        with pytest.raises(NotFound, match="snapshots: before"):
            await agent.done(verbs.restore_snapshot(VM, "after"))
        assert agent.runtimes["kvm"].counts["restore_snapshot"] == 0
        await agent.done(verbs.machine_power(VM, "pause", 60))
        await agent.done(verbs.machine_power(VM, "resume", 60))
        await agent.done(verbs.restore_snapshot(VM, "before"))
        assert [one.name for one in await verbs.list_snapshots(VM)] == ["before"]
        await agent.done(verbs.delete_snapshot(VM, "before"))
        assert await verbs.list_snapshots(VM) == []


async def test_memory_is_not_restored_for_a_machine_that_is_to_be_off(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        verbs = backend.machines
        await agent.done(verbs.create_snapshot(VM, "whole", True))
        await agent.done(verbs.machine_power(VM, "stop", 60))
        with pytest.raises(Conflict, match="'kubeletx vm start' first"):
            await agent.done(verbs.restore_snapshot(VM, "whole"))
        assert agent.runtimes["kvm"].counts["restore_snapshot"] == 0
        await agent.done(verbs.machine_power(VM, "start", 60))
        await agent.done(verbs.restore_snapshot(VM, "whole"))


async def test_a_snapshot_whose_answer_is_lost_is_unknown(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("create_snapshot", error=Unavailable("gone"), times=1)
        with pytest.raises(Unavailable):
            await agent.done(backend.machines.create_snapshot(VM, "s", False))
        (one,) = (await backend.machines.find_machine(VM)).operations
        assert (one.verb, one.detail, one.outcome) == ("snapshot create", "s", "unknown")


async def test_what_the_runtime_cannot_do_is_refused_in_words(agent: AgentModel) -> None:
    agent.without = (SupportsSnapshots,)
    async with agent.running() as backend:
        await agent.apply(a_machine())
        with pytest.raises(Unsupported, match="runtime kvm cannot make snapshots"):
            await backend.machines.list_snapshots(VM)


async def test_interfaces_come_and_go_by_verb_and_eth0_stays(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        verbs = backend.machines
        found = await agent.done(verbs.attach_nic(VM, NicRequest(name="data", subnet_name="blue")))
        assert [(one.name, one.state) for one in found] == [("eth0", "attached"), ("data", "attached")]
        with pytest.raises(Conflict, match="has an interface 'data' already"):
            await verbs.attach_nic(VM, NicRequest(name="data"))
        with pytest.raises(Conflict, match=r"eth0 .* belongs to the pod network"):
            await verbs.detach_nic(VM, "eth0")
    async with agent.running() as backend:
        verbs = backend.machines
        await agent.until(lambda: worker_of(agent).facts.overrides is not None)
        await agent.clock.run_for(10)
        assert [one.name for one in await verbs.list_nics(VM)] == ["eth0", "data"]
        found = await agent.done(verbs.detach_nic(VM, "data"))
        assert [one.name for one in found] == ["eth0"]
        await agent.done(verbs.detach_nic(VM, "data"))


async def test_interfaces_follow_the_spec_and_one_without_its_port_waits_with_events(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        agent.runtimes["kvm"].script("attach_nic", error=Unavailable("port p9 is not there yet"), times=2)
        nics = (Nic(name="eth0"), Nic(name="data", port_id="p9"))
        await backend.pods.apply_pod(a_machine(nics=nics))
        await agent.until(lambda: "data" in unit_of(agent).nics)
        events = [event.reason for event in await backend.node.list_events()]
        assert "FailedNic" in events
        assert "NicAttached" in events
        with pytest.raises(Conflict, match="nics"):
            await backend.pods.apply_pod(a_machine(nics=(Nic(name="eth0"), Nic(name="data", port_id="p1"))))
        await backend.pods.apply_pod(a_machine(nics=(Nic(name="eth0"),)))
        await agent.until(lambda: "data" not in unit_of(agent).nics)


async def test_a_machine_is_resized_while_it_runs_and_what_was_granted_is_shown_apart(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        view = await agent.done(backend.machines.resize_machine(VM, MachineSize(memory="2Gi")))
        assert view.limits == {"cpu": "1", "memory": "2Gi"}
        await agent.until(lambda: unit_of(agent).resources.memory_limit_bytes == 2 << 30)

        def granted() -> str | None:
            status = worker_of(agent).facts.previous_status
            machine = status.virtual_machine_status if status is not None else None
            return machine.resources.limits.get("memory") if machine is not None else None

        await agent.until(lambda: granted() == "2Gi")
        with pytest.raises(InvalidConfig, match="not more than 0"):
            await backend.machines.resize_machine(VM, MachineSize(cpu="0"))
    async with agent.running() as backend:
        await agent.until(lambda: worker_of(agent).facts.overrides is not None)
        await agent.clock.run_for(20)
        assert agent.runtimes["kvm"].counts["update_resources"] == 0, "it was asked for already"
        view = await backend.machines.find_machine(VM)
        assert (view.limits["memory"], view.granted["memory"]) == ("2Gi", "2Gi")


async def test_a_size_that_the_node_has_not_is_refused_and_forgotten(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        with pytest.raises(Conflict, match=r"cannot resize machine default/vm: .*memory"):
            await agent.done(backend.machines.resize_machine(VM, MachineSize(memory="64Ti")))
        assert (await backend.machines.find_machine(VM)).limits["memory"] == "1Gi"
        reasons = [event.reason for event in await backend.node.list_events()]
        assert "ResizeInfeasible" in reasons
        assert agent.runtimes["kvm"].counts["update_resources"] == 0
        await agent.done(backend.machines.resize_machine(VM, MachineSize(memory="2Gi")))
        await agent.until(lambda: unit_of(agent).resources.memory_limit_bytes == 2 << 30)


async def test_a_resize_that_follows_an_impossible_one_at_once_is_not_lost(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        impossible = asyncio.create_task(
            backend.machines.resize_machine(VM, MachineSize(memory="64Ti")), name="impossible"
        )
        # Its refusal may come between two looks at the wanted size.
        await agent.until(lambda: wanted_memory(agent) == "64Ti" or impossible.done())
        possible = await agent.done(backend.machines.resize_machine(VM, MachineSize(memory="2Gi")))
        assert possible.limits["memory"] == "2Gi"
        await agent.done(asyncio.wait([impossible]))
        assert (await backend.machines.find_machine(VM)).limits["memory"] == "2Gi"
        await agent.until(lambda: unit_of(agent).resources.memory_limit_bytes == 2 << 30)


async def test_a_resize_after_two_impossible_ones_goes_back_to_what_was_before_both(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        calls = [
            asyncio.create_task(backend.machines.resize_machine(VM, size), name="impossible")
            for size in (MachineSize(memory="64Ti"), MachineSize(memory="65Ti"))
        ]
        await agent.done(asyncio.wait(calls))
        assert all(isinstance(call.exception(), Conflict) for call in calls)
        assert (await backend.machines.find_machine(VM)).limits == {"cpu": "1", "memory": "1Gi"}


async def test_a_resize_after_a_size_of_the_spec_that_the_runtime_refused_is_not_lost(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        runtime = agent.runtimes["kvm"]
        update = runtime.update_resources

        async def at_most_4_gib(unit_id: UnitId, resources: Resources) -> None:
            if (resources.memory_limit_bytes or 0) > 4 << 30:
                raise InvalidPod(field="memory", problem="is more than the machine was made for")
            await update(unit_id, resources)

        runtime.update_resources = at_most_4_gib  # type: ignore[method-assign]
        await backend.pods.apply_pod(sized_machine("8Gi"))
        await agent.until(lambda: worker_of(agent).facts.unit("testvm").resize_failure is not None)
        await agent.done(backend.machines.resize_machine(VM, MachineSize(memory="2Gi")))
        assert unit_of(agent).resources.memory_limit_bytes == 2 << 30


def sized_machine(memory: str) -> Pod:
    made = a_machine()
    machine = made.spec.virtual_machine
    assert machine is not None
    machine = replace(machine, resources=ResourceRequirements(limits={"cpu": "1", "memory": memory}))
    return replace(made, spec=replace(made.spec, virtual_machine=machine))


def wanted_memory(agent: AgentModel) -> str | None:
    overrides = overrides_of(worker_of(agent))
    return overrides.resources.get("memory") if overrides is not None else None


async def test_a_screenshot_and_the_definition_come_from_the_runtime(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        assert (await backend.machines.machine_screenshot(VM)).startswith(b"\x89PNG")
        assert "<name>testvm</name>" in await backend.machines.machine_definition(VM)
        await agent.done(backend.machines.machine_power(VM, "stop", 60))
        with pytest.raises(Conflict, match="is off"):
            await backend.machines.machine_screenshot(VM)


async def test_a_size_with_the_policy_to_restart_restarts_the_machine(agent: AgentModel) -> None:
    def sized(memory: str) -> Pod:
        made = a_machine()
        machine = made.spec.virtual_machine
        assert machine is not None
        machine = replace(
            machine,
            resources=ResourceRequirements(limits={"cpu": "1", "memory": memory}),
            resize_policy=(
                VirtualMachineResizePolicy(resource_name="memory", policy="RestartContainer"),
                VirtualMachineResizePolicy(resource_name="cpu", policy="NoRestart"),
            ),
        )
        return replace(made, spec=replace(made.spec, virtual_machine=machine))

    async with agent.running() as backend:
        await agent.apply(sized("1Gi"))
        await backend.pods.apply_pod(sized("2Gi"))
        await agent.until(lambda: unit_of(agent).summary.attempt == 1)
        await agent.until(lambda: unit_of(agent).summary.state is UnitState.RUNNING)
        assert unit_of(agent).resources.memory_limit_bytes == 2 << 30
        assert agent.runtimes["kvm"].counts["update_resources"] == 0


async def test_a_runtime_without_hotplug_or_resize_says_so_once(agent: AgentModel) -> None:
    agent.without = (SupportsNics, SupportsResize)
    async with agent.running() as backend:
        await agent.apply(a_machine())
        made = a_machine(nics=(Nic(name="data"),))
        machine = made.spec.virtual_machine
        assert machine is not None
        machine = replace(machine, resources=ResourceRequirements(limits={"cpu": "2", "memory": "1Gi"}))
        await backend.pods.apply_pod(replace(made, spec=replace(made.spec, virtual_machine=machine)))
        await agent.until(lambda: worker_of(agent).desired.pod.spec.nics != ())
        await agent.clock.run_for(30)
        reasons = [event.reason for event in await backend.node.list_events()]
        assert reasons.count("NicUnsupported") == 1
        assert reasons.count("ResizeUnsupported") == 1
        with pytest.raises(Unsupported, match="runtime kvm cannot resize"):
            await backend.machines.resize_machine(VM, MachineSize(cpu="2"))
