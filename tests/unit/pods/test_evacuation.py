"""Pods with sessions are evacuated before their containers are stopped, on every way on which a pod ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, RuntimeName, UnitState, names
from kubeletx.pods.dependencies import Evacuation
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.actions import Evacuate
from kubeletx.pods.plan.stop import RESERVED_SECONDS
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.overrides import with_power
from kubeletx.pods.workloads.power import Power
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import is_in

UID = PodUid("uid-web")
GRACE = 40


class Clients:
    """Clients of pods; those of a pod leave when `leave` is set."""

    def __init__(self) -> None:
        self.of = {UID}
        self.questions = 0
        self.deadlines: list[float] = []
        self.cancelled = 0
        self.leave = asyncio.Event()
        self.error: Exception | None = None

    def is_there(self, uid: PodUid) -> bool:
        self.questions += 1
        return uid in self.of

    async def send_away(self, uid: PodUid, deadline: float) -> None:
        self.deadlines.append(deadline)
        if self.error is not None:
            raise self.error
        try:
            await self.leave.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.of.discard(uid)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def clients(node: Node) -> Clients:
    clients = Clients()
    node.evacuations.append(Evacuation(is_needed=clients.is_there, run=clients.send_away))
    return clients


async def started(node: Node, **spec: object) -> PodWorker:
    return await node.start(a_pod(termination_grace_period_seconds=GRACE, **spec))  # type: ignore[arg-type]


def stops(node: Node) -> int:
    return node.runtimes["one"].counts["stop_unit"]


def end_as(reason: str) -> Callable[[PodManager], object]:
    return lambda manager: manager.active.end(UID, grace_seconds=GRACE, reason=reason, message="m")


def replaced(manager: PodManager) -> None:
    manager.remove("file", UID)
    manager.update("file", a_pod(uid="other"))


WAYS: dict[str, Callable[[PodManager], object]] = {
    "deletion": lambda manager: manager.remove("file", UID),
    "eviction": end_as("Evicted"),
    "preemption": end_as("Preempting"),
    "shutdown of the host": end_as("Terminated"),
    "another pod of the name": replaced,
    "end of all pods of a runtime": lambda manager: manager.end_on(RuntimeName("one")),
}


@pytest.mark.parametrize("way", WAYS)
async def test_containers_are_stopped_when_the_clients_are_gone(
    node: Node, clients: Clients, way: str
) -> None:
    async with node.running() as manager:
        await started(node)
        WAYS[way](manager)
        began = node.clock.monotonic()
        await node.until(lambda: clients.deadlines)
        await node.clock.run_for(5)
        assert stops(node) == 0
        assert began < clients.deadlines[0] < began + GRACE - RESERVED_SECONDS
        clients.leave.set()
        await node.until(lambda: stops(node) == 1)
        await node.until(
            lambda: UID not in manager.workers or node.phase(UID) == "Failed" or way.startswith("end")
        )
        assert len(clients.deadlines) == 1


async def test_a_deadline_of_the_pod_evacuates_it(node: Node, clients: Clients) -> None:
    async with node.running():
        await started(node, active_deadline_seconds=60)
        await node.until(lambda: clients.deadlines)
        assert stops(node) == 0
        clients.leave.set()
        await node.until(lambda: node.phase(UID) == "Failed")


async def test_clients_that_stay_leave_time_for_an_orderly_stop(node: Node, clients: Clients) -> None:
    async with node.running() as manager:
        await started(node)
        began = node.clock.monotonic()
        manager.remove("file", UID)
        await node.until(lambda: stops(node) == 1)
        waited = node.clock.monotonic() - began
        assert clients.deadlines[0] <= began + waited
        assert waited == pytest.approx(GRACE - RESERVED_SECONDS, abs=1)
        await node.until(lambda: not manager.workers)
        assert clients.cancelled == 1


@pytest.mark.parametrize("way", ["forced", "grace 0", "runtime forced", "no container runs"])
async def test_some_ends_do_not_wait_for_clients(node: Node, clients: Clients, way: str) -> None:
    async with node.running() as manager:
        await started(node, restart_policy="Never")
        match way:
            case "forced":
                manager.remove("file", UID, GRACE, force=True)
            case "grace 0":
                manager.remove("file", UID, 0)
            case "runtime forced":
                manager.end_on(RuntimeName("one"), force=True)
            case _:
                backend = node.runtimes["one"].backend
                backend.exit_unit(backend.find_unit("c0"), 1)
                await node.until(lambda: node.phase(UID) == "Failed")
                manager.remove("file", UID)
        await node.until(lambda: stops(node) == 1 or not manager.workers)
        assert not clients.deadlines


@pytest.mark.parametrize(("grace", "force"), [(2, False), (GRACE, True), (0, False)])
async def test_an_end_that_gets_more_urgent_goes_on_at_once(
    node: Node, clients: Clients, grace: int, force: bool
) -> None:
    async with node.running() as manager:
        await started(node)
        manager.remove("file", UID)
        await node.until(lambda: clients.deadlines)
        manager.remove("file", UID, grace, force)
        await node.until(lambda: stops(node) == 1, seconds=1.5)
        assert clients.cancelled == 1
        await node.until(lambda: not manager.workers)
        assert len(clients.deadlines) == 1


async def test_containers_that_end_by_themselves_end_the_wait(node: Node, clients: Clients) -> None:
    async with node.running() as manager:
        await started(node)
        manager.remove("file", UID)
        await node.until(lambda: clients.deadlines)
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("c0"), 0)
        await node.until(lambda: not manager.workers, seconds=5)


async def test_a_failure_does_not_hold_up_the_end(node: Node, clients: Clients) -> None:
    clients.error = RuntimeError("a bug")
    async with node.running() as manager:
        await started(node)
        manager.remove("file", UID)
        await node.until(lambda: not manager.workers, seconds=5)
        assert len(clients.deadlines) == 1


async def test_a_restart_of_the_agent_resumes_the_evacuation(node: Node, clients: Clients) -> None:
    async with node.running() as manager:
        await started(node)
        manager.remove("file", UID)
        await node.until(lambda: clients.deadlines)
    assert clients.cancelled == 1
    assert stops(node) == 0
    async with node.running() as manager:
        manager.synced("file")
        await node.until(lambda: len(clients.deadlines) == 2)
        assert node.alive() == ["web/c0"]
        clients.leave.set()
        await node.until(lambda: not manager.workers)


async def test_a_frozen_pod_is_thawed_so_that_its_clients_can_leave(node: Node, clients: Clients) -> None:
    async with node.running() as manager:
        worker = await started(node)
        worker.ask_power(Power.STANDBY, "test")
        await node.until(lambda: is_in(node, UnitState.PAUSED))
        manager.remove("file", UID)
        await node.until(lambda: clients.deadlines and is_in(node, UnitState.RUNNING))
        assert stops(node) == 0
        assert clients.cancelled == 0
        clients.leave.set()
        await node.until(lambda: not manager.workers)


@pytest.mark.parametrize("state", [UnitState.PAUSED, UnitState.SUSPENDED])
@pytest.mark.parametrize("is_standby", [True, False])
async def test_a_machine_that_does_not_run_is_resumed_so_that_its_clients_can_leave(
    tmp_path: Path, clients: Clients, state: UnitState, is_standby: bool
) -> None:
    pod = a_pod(termination_grace_period_seconds=GRACE)
    machine = replace(pod, metadata=replace(pod.metadata, annotations={names.WORKLOAD_TYPE: "vm"}))
    node = Node(tmp_path, workload_type="vm")
    node.evacuations.append(Evacuation(is_needed=clients.is_there, run=clients.send_away))
    async with node.running() as manager:
        worker = await node.start(machine)
        if is_standby:
            worker.ask_power(Power.STANDBY if state is UnitState.PAUSED else Power.HIBERNATED, "test")
        else:
            power = Power.PAUSED if state is UnitState.PAUSED else Power.SUSPENDED
            await node.services.overrides.amend(
                worker, lambda old: with_power(old, power.value, "running", "Running")
            )
        await node.until(lambda: is_in(node, state))
        manager.remove("file", UID)
        await node.until(lambda: clients.deadlines and is_in(node, UnitState.RUNNING))
        assert stops(node) == 0
        clients.leave.set()
        await node.until(lambda: not manager.workers)


async def test_pods_without_clients_pay_nothing(node: Node, clients: Clients) -> None:
    clients.of.clear()
    async with node.running() as manager:
        worker = await started(node)
        assert clients.questions == 0
        manager.remove("file", UID)
        await node.until(lambda: not manager.workers)
        assert not clients.deadlines
        assert not any(entry.action == Evacuate.subject for entry in worker.history.entries)
