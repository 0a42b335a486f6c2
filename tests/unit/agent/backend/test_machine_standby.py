"""``kubeletx pod standby|activate`` and the annotation on virtual machines, on a whole agent with fake runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    EventKind,
    Internal,
    SupportsStandby,
    TimedOut,
    UnitState,
    Unsupported,
)
from kubeletx.kube.types.core import (
    Container,
    ExecAction,
    Pod,
    PodCondition,
    Probe,
    ResourceRequirements,
    VirtualMachine,
)
from kubeletx.server.backend import AdminBackend
from kubeletx.server.views import PodTarget
from kubeletx.testing import FakeRuntime
from tests.unit.agent.agent_model import AgentModel, a_pod

VM = PodTarget(namespace="default", name="vm")
PROBE = Probe(exec=ExecAction(command=("true",)), period_seconds=1)


@pytest.fixture
def agent(tmp_path: Path) -> AgentModel:
    return AgentModel(tmp_path, names=("one", "kvm"))


def a_machine(power: str | None = None, word: str = "", probe: Probe | None = None, **spec: Any) -> Pod:
    """A machine pod with powerSpec `power` and, unless `word` is empty, annotation kubeletx.io/standby.

    With `probe` it is in the second form: one container with an annotation.
    """
    resources = ResourceRequirements(
        requests={"cpu": "100m", "memory": "10Mi"}, limits={"cpu": "1", "memory": "1Gi"}
    )
    notes = {"kubeletx.io/standby": word} if word else {}
    if probe is None:
        machine = VirtualMachine(name="guest", image="busybox", power_spec=power, resources=resources)
        pod = a_pod("vm", containers=(), virtual_machine=machine, **spec)
    else:
        container = Container(name="guest", image="busybox", resources=resources, readiness_probe=probe)
        pod = a_pod("vm", containers=(container,), **spec)
        notes["kubeletx.io/workload-type"] = "vm"
    return replace(pod, metadata=replace(pod.metadata, annotations=notes))


def kvm(agent: AgentModel) -> FakeRuntime:
    return agent.runtimes["kvm"]


def state(agent: AgentModel) -> UnitState:
    backend = kvm(agent).backend
    return backend.unit(backend.find_unit("guest")).summary.state


def condition(agent: AgentModel) -> PodCondition | None:
    worker = agent.parts.manager.find("default", "vm")
    status = worker.facts.previous_status if worker is not None else None
    assert status is not None
    return next((one for one in status.conditions if one.type == "kubeletx.io/Standby"), None)


def reason(agent: AgentModel) -> str:
    found = condition(agent)
    return (found.reason or "") if found is not None else ""


def hold(agent: AgentModel) -> None:
    """The guest's disk fails: its emulator pauses it."""
    backend = kvm(agent).backend
    unit = backend.unit(backend.find_unit("guest"))
    unit.reason, unit.message = "DiskError", "input and output of its disk vda fail"
    backend.set_state(unit.summary.id, UnitState.PAUSED, EventKind.CHANGED)


async def events(backend: AdminBackend) -> dict[str, str]:
    found = await backend.node.list_events()
    return {one.reason or "": one.message or "" for one in found if one.involved_object.name == "vm"}


async def standby(agent: AgentModel, backend: AdminBackend, verb: str = "standby") -> str:
    """Run a command of ``kubeletx pod``; returns the desired state that it shows."""
    return (await agent.done(backend.standby.set_standby(VM, verb, 60))).power


async def power(agent: AgentModel, backend: AdminBackend, verb: str) -> str:
    """Run a command of ``kubeletx vm``; returns the desired state that it shows."""
    return (await agent.done(backend.machines.machine_power(VM, verb, 60))).power


@pytest.mark.parametrize(
    ("verb", "wanted", "state_after", "call", "shown"),
    [
        ("standby", "standby", UnitState.PAUSED, "freeze", "Standby"),
        ("hibernate", "hibernated", UnitState.SUSPENDED, "hibernate", "Hibernated"),
    ],
)
async def test_a_machine_rests_and_is_activated_with_condition_events_and_metrics(
    agent: AgentModel, verb: str, wanted: str, state_after: UnitState, call: str, shown: str
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        assert condition(agent) is None
        view = await agent.done(backend.standby.set_standby(VM, verb, 60))
        assert (view.power, view.containers) == (wanted, {"guest": state_after.value})
        assert state(agent) is state_after
        await agent.until(lambda: reason(agent) == shown)
        assert await agent.metric("kubeletx_standby_pods") == {"standby": 0, "hibernated": 0, wanted: 1}
        assert await standby(agent, backend, "activate") == "running"
        assert state(agent) is UnitState.RUNNING
        await agent.until(lambda: reason(agent) == "NotFrozen")
        assert (kvm(agent).counts[call], kvm(agent).counts["thaw"]) == (1, 1)
        assert kvm(agent).counts["pause"] + kvm(agent).counts["suspend"] + kvm(agent).counts["resume"] == 0
        said = await events(backend)
        assert said["Activated"].startswith("Thawed machine guest in ")
        assert "machine guest in 0." in said[shown]
        assert await agent.durations("kubeletx_standby_duration_seconds") == {call: 1, "thaw": 1}


async def test_a_hibernated_machine_has_given_back_the_memory_of_its_emulator(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await standby(agent, backend, "hibernate")
        await agent.until(lambda: reason(agent) == "Hibernated")
        (unit,) = kvm(agent).backend.units.values()
        found = condition(agent)
        assert found is not None
        mebibytes = unit.behaviour.memory_bytes / (1 << 20)
        assert found.message == f"hibernated in 0.000s; memory: {mebibytes:.1f} MiB before, 0.0 MiB after"
        freed = await agent.metric("kubeletx_standby_freed_bytes_total")
        assert freed == {"": unit.behaviour.memory_bytes}


@pytest.mark.parametrize(
    ("word", "after"), [("standby", UnitState.PAUSED), ("hibernated", UnitState.SUSPENDED)]
)
async def test_a_machine_with_the_annotation_starts_running_becomes_ready_and_rests(
    agent: AgentModel, word: str, after: UnitState
) -> None:
    async with agent.running():
        kvm(agent).script("exec_sync", error=Conflict("not yet"))
        await agent.apply(a_machine(word=word, probe=PROBE))
        await agent.clock.run_for(30)
        assert state(agent) is UnitState.RUNNING
        assert reason(agent) == "NotFrozenYet"
        (unit,) = kvm(agent).backend.units.values()
        assert unit.spec is not None
        assert getattr(unit.spec.detail, "power", "") == "running", "the runtime does not create it at rest"
        kvm(agent).scripts.clear()
        await agent.until(lambda: state(agent) is after)


async def test_the_probes_of_a_machine_on_standby_rest(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine(probe=PROBE))
        await agent.until(lambda: kvm(agent).counts["exec_sync"] > 2)
        await standby(agent, backend)
        before = kvm(agent).counts["exec_sync"]
        await agent.clock.run_for(60)
        assert kvm(agent).counts["exec_sync"] == before
        await standby(agent, backend, "activate")
        await agent.until(lambda: kvm(agent).counts["exec_sync"] > before)


async def test_the_last_command_of_both_families_counts(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        assert await standby(agent, backend) == "standby"
        assert await power(agent, backend, "resume") == "running"
        assert state(agent) is UnitState.RUNNING
        assert await power(agent, backend, "pause") == "paused"
        assert reason(agent) == "NotFrozen", "a machine that vm pause paused is not on standby"
        assert await standby(agent, backend) == "standby"
        await agent.until(lambda: reason(agent) == "Standby")
        assert await power(agent, backend, "suspend") == "suspended"
        assert state(agent) is UnitState.SUSPENDED
        assert await standby(agent, backend) == "standby"
        assert state(agent) is UnitState.PAUSED
        assert await standby(agent, backend, "hibernate") == "hibernated"
        assert await power(agent, backend, "pause") == "paused"
        assert state(agent) is UnitState.PAUSED
        assert await standby(agent, backend, "activate") == "running"
        assert state(agent) is UnitState.RUNNING
        assert await power(agent, backend, "stop") == "off"
        for verb in ("standby", "hibernate", "activate"):
            with pytest.raises(
                Conflict, match=f"cannot {verb} machine default/vm: it is off; use 'kubeletx vm"
            ):
                await backend.standby.set_standby(VM, verb, 60)
        assert await power(agent, backend, "start") == "running"
    assert kvm(agent).counts["create_unit"] == 1


async def test_a_machine_that_vm_resume_resumes_is_not_shown_on_standby_meanwhile(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await power(agent, backend, "pause")
        stuck = kvm(agent).script("resume", hang=True)
        with pytest.raises(TimedOut):
            await agent.done(backend.machines.machine_power(VM, "resume", 2))
        assert (state(agent), condition(agent)) == (UnitState.PAUSED, None)
        stuck.release()
        await agent.until(lambda: state(agent) is UnitState.RUNNING)
        assert kvm(agent).counts["thaw"] == 0


async def test_power_spec_stays_in_force_over_the_annotation_and_an_edit_of_it_over_a_command(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine("Paused", "hibernated"))
        await agent.until(lambda: state(agent) is UnitState.PAUSED)
        await agent.clock.run_for(30)
        assert state(agent) is UnitState.PAUSED
        assert condition(agent) is None
        await agent.apply(a_machine("Running", "hibernated"))
        await agent.until(lambda: state(agent) is UnitState.SUSPENDED)
        assert await standby(agent, backend, "activate") == "running"
        await agent.apply(a_machine("Suspended", "hibernated"))
        await agent.until(lambda: state(agent) is UnitState.SUSPENDED)
        assert (await backend.machines.find_machine(VM)).power == "suspended"
        assert await standby(agent, backend, "activate") == "running"
        assert (await backend.machines.find_machine(VM)).overrides == "Suspended"


async def test_a_request_outlives_the_agent_which_finds_the_machine_at_rest(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await standby(agent, backend, "hibernate")
    async with agent.running() as backend:
        await agent.clock.run_for(20)
        assert state(agent) is UnitState.SUSPENDED
        assert reason(agent) == "Hibernated"
        assert kvm(agent).counts["thaw"] + kvm(agent).counts["resume"] == 0
        await standby(agent, backend, "activate")
    assert kvm(agent).counts["create_unit"] == 0


async def test_an_agent_that_was_killed_between_freeze_and_record_finds_the_machine_at_rest(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine(word="standby", probe=PROBE))
        await agent.until(lambda: state(agent) is UnitState.PAUSED)
        await standby(agent, backend, "activate")
    backend_of_kvm = kvm(agent).backend
    # What the killed agent had done: the request is written, the machine frozen, no status says so.
    (file,) = [one for one in agent.config.root_dir.rglob("*") if one.is_file() and "overrides" in one.name]
    file.write_text("{}")
    backend_of_kvm.set_state(backend_of_kvm.find_unit("guest"), UnitState.PAUSED)
    async with agent.running():
        await agent.until(lambda: reason(agent) == "Standby")
        await agent.clock.run_for(30)
        assert state(agent) is UnitState.PAUSED
        assert kvm(agent).counts["freeze"] + kvm(agent).counts["thaw"] == 0


async def test_a_runtime_that_restarts_has_the_machine_at_rest(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await standby(agent, backend)
        kvm(agent).backend.kill()
        await agent.clock.run_for(30)
        kvm(agent).backend.revive()
        await agent.clock.run_for(30)
        assert (state(agent), reason(agent)) == (UnitState.PAUSED, "Standby")
        assert await standby(agent, backend, "activate") == "running"


async def test_a_command_wakes_a_machine_on_standby_and_not_one_that_was_paused(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        for verb, rests in (("standby", UnitState.PAUSED), ("hibernate", UnitState.SUSPENDED)):
            await standby(agent, backend, verb)
            assert await agent.done(used(agent, backend)) is UnitState.RUNNING
            await agent.until(lambda: state(agent) is rests)  # noqa: B023 - awaited at once
        await power(agent, backend, "pause")
        thaws = kvm(agent).counts["thaw"]
        assert await agent.done(used(agent, backend)) is UnitState.PAUSED
        await agent.clock.run_for(10)
        assert (state(agent), kvm(agent).counts["thaw"]) == (UnitState.PAUSED, thaws)


async def used(agent: AgentModel, backend: AdminBackend) -> UnitState:
    """Use the pod as exec does; return the machine's state meanwhile."""
    async with backend.pods.awake(VM):
        return state(agent)


async def test_a_setting_leaves_machines_at_rest(agent: AgentModel) -> None:
    agent.configure("pods", standby_streams="refuse")
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await standby(agent, backend)
        with pytest.raises(Conflict, match="pod default/vm is standby; wake it with 'kubeletx pod activate'"):
            await agent.done(used(agent, backend))
        await power(agent, backend, "pause")
        assert await agent.done(used(agent, backend)) is UnitState.PAUSED


async def test_a_machine_that_does_not_thaw_says_why(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        await standby(agent, backend, "hibernate")
        kvm(agent).script("thaw", error=Internal("the saved memory is damaged"))
        with pytest.raises(Conflict, match="cannot thaw pod default/vm: the saved memory is damaged"):
            await agent.done(used(agent, backend))
        with pytest.raises(Conflict, match="cannot resume machine default/vm: the saved memory is damaged"):
            await power(agent, backend, "resume")
        with pytest.raises(Conflict, match="cannot activate pod default/vm: the saved memory is damaged"):
            await standby(agent, backend, "activate")


async def test_a_machine_that_cannot_be_saved_keeps_running_with_the_reason_and_can_be_frozen(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        text = "it shares directories with the node (data)"
        kvm(agent).script("hibernate", error=Unsupported(text))
        await agent.apply(a_machine(word="hibernated"))
        await agent.until(lambda: reason(agent) == "FreezeFailed")
        await agent.clock.run_for(300)
        found = condition(agent)
        assert found is not None
        assert (found.status, found.message) == ("False", f"machine guest: {text}")
        assert (state(agent), kvm(agent).counts["hibernate"]) == (UnitState.RUNNING, 1)
        for _ in range(2):
            with pytest.raises(Conflict, match="cannot hibernate pod default/vm: it shares directories"):
                await standby(agent, backend, "hibernate")
            assert state(agent) is UnitState.RUNNING
        assert await standby(agent, backend) == "standby"
        assert state(agent) is UnitState.PAUSED
        with pytest.raises(Conflict, match="cannot hibernate pod default/vm: it shares directories"):
            await standby(agent, backend, "hibernate")
        await agent.until(lambda: state(agent) is UnitState.RUNNING)


async def test_a_guest_that_paused_itself_is_not_resumed_by_anything_but_vm_resume(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_machine())
        hold(agent)
        await agent.clock.run_for(10)
        for verb in ("activate", "standby", "hibernate"):
            with pytest.raises(
                Conflict, match=f"cannot {verb} pod default/vm: machine guest paused itself: input and output"
            ):
                await standby(agent, backend, verb)
        await agent.until(lambda: reason(agent) == "FreezeFailed")
        assert await agent.done(used(agent, backend)) is UnitState.PAUSED
        await agent.clock.run_for(30)
        counts = kvm(agent).counts
        assert [counts[one] for one in ("freeze", "hibernate", "thaw", "resume")] == [0, 0, 0, 0]
        assert state(agent) is UnitState.PAUSED
        assert await power(agent, backend, "resume") == "running"
        assert state(agent) is UnitState.RUNNING


async def test_a_share_of_the_requests_of_a_machine_at_rest_counts(agent: AgentModel) -> None:
    agent.configure("pods", standby_requests_percent=10)
    async with agent.running() as backend:
        await agent.apply(a_machine())
        whole = agent.counted()
        assert whole[0] == 100
        await standby(agent, backend)
        await agent.until(lambda: agent.counted() == (10, whole[1]))
        await standby(agent, backend, "hibernate")
        await agent.until(lambda: agent.counted() == (10, whole[1] // 10))
        stuck = kvm(agent).script("thaw", hang=True)
        with pytest.raises(TimedOut):
            await agent.done(backend.standby.set_standby(VM, "activate", 2))
        assert agent.counted() == whole, "before the machine is thawed"
        stuck.release()
        await agent.until(lambda: state(agent) is UnitState.RUNNING)
        await power(agent, backend, "pause")
        assert agent.counted() == whole, "vm pause is not standby"


async def test_a_runtime_of_machines_without_standby_is_named(agent: AgentModel) -> None:
    agent.without = (SupportsStandby,)
    async with agent.running() as backend:
        await agent.apply(a_machine())
        with pytest.raises(Unsupported, match="runtime kvm of pod default/vm cannot freeze machines"):
            await standby(agent, backend)
        await power(agent, backend, "pause")
        assert await agent.done(used(agent, backend)) is UnitState.PAUSED
