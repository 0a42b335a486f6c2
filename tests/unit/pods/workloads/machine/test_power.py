"""The power of a machine: powerSpec and verbs, in both directions, over restarts of the agent."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from kubeletx.api import Conflict, SupportsMachine, UnitState, names
from kubeletx.kube.types.core import Pod, VirtualMachine
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.overrides import with_power
from tests.unit.pods.manager_model import Node, a_pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, workload_type="vm")


def a_machine(power: str = "Running", **spec: Any) -> Pod:
    machine = VirtualMachine(name="testVM", image="busybox", power_spec=power)
    return a_pod("vm", containers=0, virtual_machine=machine, **spec)


def state(node: Node) -> UnitState:
    backend = node.runtimes["one"].backend
    return backend.unit(backend.find_unit("testvm")).summary.state


def power_state(node: Node) -> str | None:
    status = node.services.board.statuses.get(a_machine().uid)
    machine = status.virtual_machine_status if status is not None else None
    return machine.power_state if machine is not None else None


def count(node: Node, method: str) -> int:
    return node.runtimes["one"].counts[method]


async def wish(node: Node, worker: PodWorker, power: str) -> None:
    spec = worker.desired.pod.spec.virtual_machine
    assert spec is not None
    await node.services.overrides.amend(
        worker, lambda o: with_power(o, power, "running", spec.power_spec or "Running")
    )


STATES = {
    "Running": (UnitState.RUNNING, "running"),
    "Paused": (UnitState.PAUSED, "paused"),
    "Suspended": (UnitState.SUSPENDED, "suspended"),
    "Shutdown": (UnitState.EXITED, "shutdown"),
}


def is_in(node: Node, power: str) -> bool:
    return (state(node), power_state(node)) == STATES[power]


@pytest.mark.parametrize("start", STATES)
@pytest.mark.parametrize("end", STATES)
async def test_power_spec_is_honoured_from_every_state_to_every_state(
    node: Node, start: str, end: str
) -> None:
    async with node.running() as manager:
        await node.start(a_machine())
        for power in (start, end):
            manager.update("file", a_machine(power))
            await node.until(partial(is_in, node, power))
        assert count(node, "create_unit") == 1
        assert node.phase(a_machine().uid) == "Running"
        if "Shutdown" in (start, end):
            assert count(node, "stop_unit") == 0


async def test_a_machine_that_is_to_be_off_is_not_started_before_its_power_is_wanted(node: Node) -> None:
    async with node.running() as manager:
        manager.update("file", a_machine("Shutdown"))
        await node.until(lambda: node.phase("uid-vm") == "Pending")
        await node.clock.run_for(30)
        assert count(node, "create_sandbox") == 0
        manager.update("file", a_machine("Running"))
        await node.until(lambda: node.phase("uid-vm") == "Running")
        assert state(node) is UnitState.RUNNING


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_switching_off_is_not_an_end_whatever_the_restart_policy(node: Node, policy: str) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine(restart_policy=policy))
        await wish(node, worker, "off")
        await node.until(lambda: state(node) is UnitState.EXITED)
        await node.clock.run_for(60)
        assert node.phase("uid-vm") == "Running"
        assert count(node, "create_unit") == 1
    async with node.running() as manager:
        manager.update("file", a_machine(restart_policy=policy))
        manager.synced("file")
        await node.until(lambda: power_state(node) == "shutdown")
        await node.clock.run_for(60)
        assert state(node) is UnitState.EXITED, "the wish outlives the agent"
        worker = manager.workers[a_machine().uid]
        await wish(node, worker, "running")
        await node.until(lambda: power_state(node) == "running")
        status = node.services.board.statuses[worker.uid].virtual_machine_status
        assert status is not None
        assert status.restart_count == 0
        assert count(node, "create_unit") == 0, "the same unit starts again"


async def test_a_guest_that_shuts_itself_down_follows_the_restart_policy(node: Node) -> None:
    async with node.running():
        await node.start(a_machine(restart_policy="Never"))
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("testvm"), 0)
        await node.until(lambda: node.phase("uid-vm") == "Succeeded")


async def test_a_verb_s_wish_holds_until_power_spec_changes(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        await wish(node, worker, "paused")
        await node.until(lambda: state(node) is UnitState.PAUSED)
        labelled = a_machine()
        labelled = changed(labelled, metadata=changed(labelled.metadata, labels={"a": "b"}))
        manager.update("file", labelled)
        await node.clock.run_for(10)
        assert state(node) is UnitState.PAUSED
        manager.update("file", a_machine("Suspended"))
        await node.until(lambda: state(node) is UnitState.SUSPENDED)
        manager.update("file", a_machine())
        await node.until(lambda: state(node) is UnitState.RUNNING)
        await node.clock.run_for(10)
        assert state(node) is UnitState.RUNNING, "the old wish does not come back with the old spec"


async def test_a_paused_machine_is_shown_as_running_but_not_ready_with_the_reason(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_machine())
        manager.update("file", a_machine("Paused"))
        await node.until(lambda: power_state(node) == "paused")
        status = node.services.board.statuses[a_machine().uid]
        found = {c.type: (c.status, c.reason, c.message) for c in status.conditions}
        assert found[names.VM_READY] == ("False", "UnitsPaused", "testvm is paused")
        assert found["Ready"][0] == "False"
        assert status.virtual_machine_status is not None
        assert (status.virtual_machine_status.name, status.virtual_machine_status.state) == (
            "testVM",
            "Paused",
        )
        manager.update("file", a_machine())
        await node.until(lambda: power_state(node) == "running")
        status = node.services.board.statuses[a_machine().uid]
        assert {c.type: c.status for c in status.conditions}[names.VM_READY] == "True"


@pytest.mark.parametrize("power", ["Paused", "Suspended", "Shutdown"])
async def test_deletion_and_the_deadline_work_in_every_state(node: Node, power: str) -> None:
    async with node.running() as manager:
        await node.start(a_machine())
        manager.update("file", a_machine(power))
        await node.until(lambda: (state(node), power_state(node)) == STATES[power])
        manager.update("file", a_machine(power, active_deadline_seconds=300))
        await node.until(lambda: node.phase("uid-vm") == "Failed", seconds=600)
        manager.remove("file", a_machine().uid)
        await node.until(lambda: not manager.workers)
        assert node.runtimes["one"].backend.sandboxes == {}


@pytest.mark.parametrize("can_power", [True, False])
async def test_only_a_runtime_without_power_is_asked_to_stop_a_machines_sandbox_before_its_removal(
    node: Node, can_power: bool
) -> None:
    node.without = () if can_power else (SupportsMachine,)
    async with node.running() as manager:
        await node.start(a_machine())
        manager.remove("file", a_machine().uid)
        await node.until(lambda: not manager.workers)
        assert count(node, "stop_unit") == 1
        assert count(node, "stop_sandbox") == (0 if can_power else 1)
        assert count(node, "remove_sandbox") == 1
        assert node.runtimes["one"].backend.sandboxes == {}


async def test_a_runtime_without_power_refuses_with_one_event_and_the_machine_goes_on(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        node.runtimes["one"].capabilities.discard(SupportsMachine)
        handle = node.registry.get(worker.facts.runtime)  # type: ignore[arg-type]
        node.runtimes["one"].backend.kill()
        await node.until(lambda: not handle.state.reachable)
        node.runtimes["one"].backend.revive()
        await node.until(lambda: handle.state.reachable)
        manager.update("file", a_machine("Paused"))
        await node.until(lambda: node.sink.reasons().count(names.Event.POWER_UNSUPPORTED) == 1)
        await node.clock.run_for(60)
        assert node.sink.reasons().count(names.Event.POWER_UNSUPPORTED) == 1
        assert state(node) is UnitState.RUNNING


async def test_a_step_that_fails_is_reported_and_tried_again_with_back_off(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_machine())
        node.runtimes["one"].script("pause", error=Conflict("the guest is busy"), times=2)
        manager.update("file", a_machine("Paused"))
        await node.until(lambda: state(node) is UnitState.PAUSED)
        assert node.sink.reasons().count("FailedPower") >= 1
        assert count(node, "pause") == 3


async def test_a_machine_that_is_off_when_the_node_restarts_stays_off(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_machine())
        manager.update("file", a_machine("Shutdown"))
        await node.until(lambda: power_state(node) == "shutdown")
        backend = node.runtimes["one"].backend
        backend.fail_sandbox(next(iter(backend.sandboxes)))
        await node.clock.run_for(30)
        assert len(backend.sandboxes) == 1
        manager.update("file", a_machine())
        await node.until(lambda: state(node) is UnitState.RUNNING)
        assert len(backend.sandboxes) == 2


async def test_one_container_with_annotations_is_the_same_machine(node: Node) -> None:
    async with node.running() as manager:
        pod = a_pod("vm", containers=1)
        notes = {names.WORKLOAD_TYPE: "vm", names.VM_POWER: "Paused"}
        pod = changed(pod, metadata=changed(pod.metadata, annotations=notes))
        manager.update("file", pod)
        backend = node.runtimes["one"].backend
        await node.until(lambda: "one" in node.runtimes and bool(backend.units))
        await node.until(lambda: power_state(node) == "paused")
        unit = backend.unit(backend.find_unit("c0"))
        assert unit.is_machine
        assert unit.summary.state is UnitState.PAUSED


async def test_a_machine_that_holds_itself_is_left_alone_and_named(node: Node) -> None:
    async with node.running():
        await node.start(a_machine())
        backend = node.runtimes["one"].backend
        unit_id = backend.find_unit("testvm")
        backend.unit(unit_id).reason = "IOError"
        backend.set_state(unit_id, UnitState.PAUSED)
        await node.until(lambda: power_state(node) == "paused")
        await node.clock.run_for(30)
        assert count(node, "resume") == 0
        status = node.services.board.statuses[a_machine().uid]
        found = {c.type: c.message for c in status.conditions}
        assert found[names.VM_READY] == "testvm is paused (IOError)"


async def test_a_machine_whose_disk_is_full_has_one_event_that_says_what_to_do(node: Node) -> None:
    async with node.running():
        await node.start(a_machine())
        backend = node.runtimes["one"].backend
        unit_id = backend.find_unit("testvm")
        unit = backend.unit(unit_id)
        unit.reason, unit.message = "DiskFull", "the node has no space left; make room there"
        backend.set_state(unit_id, UnitState.PAUSED)
        await node.until(lambda: "MachineHeld" in node.sink.reasons())
        await node.clock.run_for(60)
        (reported,) = [one for one in node.sink.recorded if one.reason == "MachineHeld"]
        assert (reported.type, reported.message) == (
            "Warning",
            "Machine testvm is paused: the node has no space left; make room there",
        )
        assert count(node, "resume") == 0
