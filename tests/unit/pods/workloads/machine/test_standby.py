"""Standby of a machine on the fake runtime: requests in memory, and every end of a machine that rests."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import EventKind, PodUid, SandboxId, TimedOut, UnitId, UnitState, UnitSummary, names
from kubeletx.kube.types.core import (
    Container,
    Pod,
    ResourceRequirements,
)
from kubeletx.pods.model.facts import Deletion, PodFacts
from kubeletx.pods.model.priority import CRITICAL_PRIORITY
from kubeletx.pods.model.sources import API
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.machine.facts import MachineFacts
from kubeletx.pods.workloads.machine.power import PowerStep, next_step
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.standby.actions import StandbyStep
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import HOOK, count, ending, is_in

RESTS = {"standby": UnitState.PAUSED, "hibernated": UnitState.SUSPENDED}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, workload_type="vm")


def a_machine(word: str = "", name: str = "vm", *, cpu: str = "0", priority: int | None = None) -> Pod:
    """A machine with a preStop hook and, unless `word` is empty, annotation kubeletx.io/standby."""
    resources = ResourceRequirements(requests={"cpu": cpu})
    container = Container(name="guest", image="busybox", lifecycle=HOOK, resources=resources)
    pod = a_pod(name, priority=priority)
    pod = replace(pod, spec=replace(pod.spec, containers=(container,)))
    notes = {names.WORKLOAD_TYPE: "vm", **({names.STANDBY: word} if word else {})}
    return replace(pod, metadata=replace(pod.metadata, annotations=notes))


async def resting(node: Node, word: str) -> PodWorker:
    worker = await node.start(a_machine(word))
    await node.until(partial(is_in, node, RESTS[word]))
    return worker


async def test_requests_in_memory_freeze_and_wake_a_machine_without_a_write(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        await node.clock.run_for(3)
        looks, files = count(node, "list_units"), sorted(node.root.glob("pods/**/*"))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        manager.ask_power(worker.uid, Power.RUNNING, "stream")
        await node.until(partial(is_in, node, UnitState.RUNNING))
        assert (count(node, "freeze"), count(node, "thaw")) == (1, 1)
        assert (count(node, "list_units"), sorted(node.root.glob("pods/**/*"))) == (looks, files)
        manager.ask_power(worker.uid, None, "stream")
        await node.until(partial(is_in, node, UnitState.PAUSED))


async def test_a_wake_does_not_interrupt_the_save_of_a_machines_memory(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        saving = node.runtimes["one"].script("hibernate", hang=True)
        manager.ask_power(worker.uid, Power.HIBERNATED, "sessions")
        await node.until(lambda: count(node, "hibernate") == 1)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.clock.run_for(0.2)
        assert worker.is_unit_changing, "the hypervisor would save on without its caller"
        saving.release()
        await node.until(lambda: count(node, "thaw") == 1)
        await node.until(partial(is_in, node, UnitState.RUNNING))


async def test_a_wake_during_a_freeze_ends_awake(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        stuck = node.runtimes["one"].script("freeze", hang=True)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") == 1)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        stuck.release()
        await node.until(lambda: count(node, "thaw") == 1)
        await node.until(partial(is_in, node, UnitState.RUNNING))


async def test_a_save_without_an_answer_is_looked_at_and_the_machine_ends_as_wanted(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        node.runtimes["one"].script("hibernate", error=TimedOut("no answer"), after_effect=True, times=1)
        manager.ask_power(worker.uid, Power.HIBERNATED, "sessions")
        await node.until(partial(is_in, node, UnitState.SUSPENDED))
        await node.clock.run_for(30)
        assert is_in(node, UnitState.SUSPENDED)
        manager.ask_power(worker.uid, None, "sessions")
        await node.until(partial(is_in, node, UnitState.RUNNING))


@pytest.mark.parametrize("word", RESTS)
async def test_a_deleted_machine_is_thawed_before_its_hook_and_its_stop(node: Node, word: str) -> None:
    async with node.running() as manager:
        worker = await resting(node, word)
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers)
        assert ending(node) == ["thaw", "exec_sync", "stop_unit"]
        assert not node.runtimes["one"].backend.sandboxes


@pytest.mark.parametrize("word", RESTS)
async def test_a_force_delete_neither_thaws_nor_leaves_anything(node: Node, word: str) -> None:
    async with node.running() as manager:
        worker = await resting(node, word)
        manager.remove("file", worker.uid, grace_seconds=0, force=True)
        await node.until(lambda: worker.uid not in manager.workers)
        await node.until(lambda: not node.runtimes["one"].backend.sandboxes)
        assert not node.runtimes["one"].backend.units
        assert count(node, "thaw") == 0


@pytest.mark.parametrize("word", RESTS)
async def test_a_machine_that_is_ended_by_its_deadline_shuts_down_in_order(node: Node, word: str) -> None:
    pod = a_machine(word)
    pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=120))
    async with node.running():
        worker = await node.start(pod)
        await node.until(partial(is_in, node, RESTS[word]))
        await node.until(lambda: node.phase(worker.uid) == "Failed", seconds=400)
        assert ending(node) == ["thaw", "exec_sync", "stop_unit"]


@pytest.mark.parametrize("word", RESTS)
async def test_a_preempted_machine_shuts_down_in_order(node: Node, word: str) -> None:
    async with node.running(allocatable={"cpu": 1000}) as manager:
        manager.update(API, a_machine(word, cpu="700m"))
        await node.until(partial(is_in, node, RESTS[word]))
        critical = a_machine(name="critical", cpu="700m", priority=CRITICAL_PRIORITY)
        manager.update(API, critical)
        await node.until(lambda: node.phase("uid-critical") == "Running")
        status = node.services.board.statuses[a_machine().uid]
        assert (status.phase, status.reason) == ("Failed", "Preempting")
        assert ending(node) == ["thaw", "exec_sync", "stop_unit"]


@pytest.mark.parametrize("word", RESTS)
async def test_an_evicted_machine_shuts_down_in_order(node: Node, word: str) -> None:
    async with node.running():
        worker = await resting(node, word)
        now = node.clock.monotonic()
        worker.delete(Deletion(requested_at=now, grace_seconds=1, reason=names.EVICTED, message="memory"))
        await node.until(lambda: node.phase(worker.uid) == "Failed")
        assert ending(node) == ["thaw", "exec_sync", "stop_unit"]


async def test_a_thaw_that_fails_does_not_delay_the_stop(node: Node) -> None:
    async with node.running() as manager:
        worker = await resting(node, "hibernated")
        node.runtimes["one"].script("thaw", error=TimedOut("the saved memory is on a slow disk"))
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers)


async def test_a_guest_that_paused_itself_is_not_thawed_for_its_stop(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_machine())
        backend = node.runtimes["one"].backend
        unit = backend.unit(backend.find_unit("guest"))
        unit.reason, unit.message = "DiskError", "input and output of its disk vda fail"
        backend.set_state(unit.summary.id, UnitState.PAUSED, EventKind.CHANGED)
        await node.until(lambda: "MachineHeld" in node.sink.reasons())
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers)
        assert (count(node, "thaw"), count(node, "stop_unit")) == (0, 1)


async def test_a_guest_that_ends_at_rest_is_started_again_and_rests_again(node: Node) -> None:
    async with node.running():
        await resting(node, "standby")
        backend = node.runtimes["one"].backend
        first = backend.find_unit("guest")
        backend.exit_unit(first, 137)
        await node.until(
            lambda: (
                is_in(node, UnitState.PAUSED)
                and [u.id for u in backend.find_units({}) if u.state.is_alive] != [first]
            )
        )


AFTER = {
    PowerStep.PAUSE: UnitState.PAUSED,
    PowerStep.RESUME: UnitState.RUNNING,
    PowerStep.SUSPEND: UnitState.SUSPENDED,
    PowerStep.POWER_OFF: UnitState.EXITED,
    StandbyStep.FREEZE: UnitState.PAUSED,
    StandbyStep.HIBERNATE: UnitState.SUSPENDED,
    StandbyStep.THAW: UnitState.RUNNING,
}
ENDS = {
    Power.RUNNING: UnitState.RUNNING,
    Power.PAUSED: UnitState.PAUSED,
    Power.STANDBY: UnitState.PAUSED,
    Power.SUSPENDED: UnitState.SUSPENDED,
    Power.HIBERNATED: UnitState.SUSPENDED,
    Power.OFF: UnitState.EXITED,
}


@pytest.mark.parametrize(
    ("state", "wanted"),
    list(product((UnitState.RUNNING, UnitState.PAUSED, UnitState.SUSPENDED), Power)),
)
def test_the_calls_lead_from_every_state_to_every_wanted_one(state: UnitState, wanted: Power) -> None:
    facts = PodFacts(own=MachineFacts(can_power=True, can_standby=True))
    unit = UnitSummary(
        id=UnitId("u"),
        sandbox_id=SandboxId("s"),
        uid=PodUid("p"),
        name="guest",
        attempt=0,
        state=state,
        created_at_ns=1,
    )
    for _ in range(3):
        step = next_step(unit, facts, wanted)
        if step is None:
            break
        assert AFTER[step] is not unit.state, "a step changes something"
        unit = replace(unit, state=AFTER[step])
    assert unit.state is ENDS[wanted]
    assert next_step(unit, facts, wanted) is None
