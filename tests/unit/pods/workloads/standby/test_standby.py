"""Standby end to end on the fake runtime: requests in memory, written overrides, restarts, stops, own events."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, EventKind, NotFound, PodUid, TimedOut, UnitState, Unsupported
from kubeletx.kube.types.core import Container, Pod
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.power import Power
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import HOOK, count, is_in, is_ready, states


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def pod_of(*containers: Container) -> Pod:
    pod = a_pod()
    return replace(pod, spec=replace(pod.spec, containers=containers))


async def write(node: Node, worker: PodWorker, power: str) -> None:
    await node.services.overrides.amend(worker, lambda overrides: replace(overrides, power=power))


async def test_a_pod_is_frozen_and_woken_by_requests_in_memory_without_a_write_or_a_look(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        await node.until(lambda: is_ready(node, worker))
        await node.clock.run_for(3)  # the look that the events of the start ask for
        looks, files = count(node, "list_units"), sorted(node.root.glob("pods/**/*"))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        await node.until(lambda: not is_ready(node, worker))
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.until(partial(is_in, node, UnitState.RUNNING))
        await node.until(lambda: is_ready(node, worker))
        assert (count(node, "freeze"), count(node, "thaw")) == (2, 2)
        assert (count(node, "list_units"), sorted(node.root.glob("pods/**/*"))) == (looks, files)


async def test_a_wake_in_memory_reaches_the_runtime_before_anything_is_written(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        await node.clock.run_for(10)
        events, files = len(node.sink.recorded), sorted(node.root.glob("pods/**/*"))
        node.store.writes_left = 0  # no write ends any more
        stuck = node.runtimes["one"].script("thaw", hang=True)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.until(lambda: count(node, "thaw") == 2)
        assert len(node.sink.recorded) == events, "a container's event follows its thaw"
        stuck.release()
        await node.until(partial(is_in, node, UnitState.RUNNING))
        await node.until(lambda: is_ready(node, worker))
        assert sorted(node.root.glob("pods/**/*")) == files


async def test_a_request_for_a_pod_that_is_not_here_is_refused(node: Node) -> None:
    async with node.running() as manager:
        with pytest.raises(NotFound):
            manager.ask_power(PodUid("nobody"), Power.RUNNING, "sessions")


async def test_a_wake_during_a_freeze_ends_awake(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        stuck = node.runtimes["one"].script("freeze", hang=True)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") == 1)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        stuck.release()
        await node.until(lambda: count(node, "thaw") == 1)
        await node.until(partial(is_in, node, UnitState.RUNNING))


async def test_a_freeze_without_an_answer_is_looked_at_and_the_pod_ends_as_wanted(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        node.runtimes["one"].script("freeze", error=TimedOut("no answer"), after_effect=True, times=1)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") >= 2)
        await node.until(partial(is_in, node, UnitState.PAUSED))


async def test_a_runtime_that_refuses_to_freeze_leaves_the_pod_awake_and_says_so_once(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        node.runtimes["one"].script("freeze", error=Unsupported("no freezer here"))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") >= 1)
        await node.clock.run_for(60)
        assert is_in(node, UnitState.RUNNING)
        assert 1 <= node.sink.reasons().count("FailedPower") <= 2, "one for each container at most"


async def test_a_written_order_outlives_the_agent_and_a_request_in_memory_does_not(node: Node) -> None:
    async with node.running():
        worker = await node.start(a_pod())
        await write(node, worker, "hibernated")
        await node.until(partial(is_in, node, UnitState.SUSPENDED))
        worker.ask_power(Power.RUNNING, "sessions")
        await node.until(partial(is_in, node, UnitState.RUNNING))
    async with node.running() as manager:
        manager.update("file", a_pod())
        await node.until(partial(is_in, node, UnitState.SUSPENDED))
        await write(node, manager.workers[worker.uid], "")
        await node.until(partial(is_in, node, UnitState.RUNNING))
    assert count(node, "create_unit") == 0, (
        "the second life of the runtime's fake counts anew: nothing was made"
    )


async def test_a_frozen_container_is_thawed_before_its_pre_stop_hook(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(pod_of(Container(name="c", image="busybox", lifecycle=HOOK)))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers)
    calls = [
        one.method for one in node.runtimes["one"].journal if one.method in ("thaw", "exec_sync", "stop_unit")
    ]
    assert calls == ["thaw", "exec_sync", "stop_unit"]


@pytest.mark.parametrize("power", [Power.STANDBY, Power.HIBERNATED])
async def test_a_deadline_thaws_a_frozen_container_before_its_hook_and_its_stop(
    node: Node, power: Power
) -> None:
    pod = pod_of(Container(name="c", image="busybox", lifecycle=HOOK))
    pod = replace(
        pod, spec=replace(pod.spec, active_deadline_seconds=120, termination_grace_period_seconds=45)
    )
    async with node.running() as manager:
        worker = await node.start(pod)
        manager.ask_power(worker.uid, power, "sessions")
        await node.until(lambda: UnitState.RUNNING not in states(node))
        await node.until(lambda: node.phase(worker.uid) == "Failed", seconds=400)
        status = node.services.board.statuses[worker.uid]
        assert status.reason == "DeadlineExceeded"
    journal = node.runtimes["one"].journal
    assert [one.method for one in journal if one.method in ("thaw", "exec_sync", "stop_unit")] == [
        "thaw",
        "exec_sync",
        "stop_unit",
    ]


async def test_a_thaw_that_fails_does_not_delay_the_stop_and_an_event_says_why(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        node.runtimes["one"].script("thaw", error=Conflict("a cgroup above it is frozen"))
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers)
    (event,) = [one for one in node.sink.recorded if one.reason == "FailedPower"]
    assert event.message == "Failed to thaw c0 before a stop: a cgroup above it is frozen"


async def test_a_sidecar_whose_thaw_hangs_does_not_hold_up_the_end_of_its_pod(
    node: Node,
) -> None:
    node.limits = replace(node.limits, request_seconds=120.0)
    node.thaw_seconds = 0.05
    sidecar = Container(name="s", image="busybox", restart_policy="Always")
    pod = replace(a_pod(), spec=replace(a_pod().spec, init_containers=(sidecar,)))
    async with node.running() as manager:
        worker = await node.start(pod)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") == 2 and is_in(node, UnitState.PAUSED))
        node.runtimes["one"].script("thaw", hang=True, key=node.runtimes["one"].backend.find_unit("s"))
        manager.remove("file", worker.uid)
        await node.until(lambda: worker.uid not in manager.workers, seconds=900)
    failed = {one.message for one in node.sink.recorded if one.reason == "FailedPower"}
    assert "Failed to thaw s before a stop: runtime one: thaw did not return within 0.05 s" in failed


async def test_a_foreign_change_of_a_unit_is_still_looked_at(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        await node.clock.run_for(10)
        backend = node.runtimes["one"].backend
        backend.set_state(backend.find_unit("c0"), UnitState.RUNNING, EventKind.CHANGED)
        await node.until(lambda: count(node, "freeze") == 2)
        await node.until(partial(is_in, node, UnitState.PAUSED))


@pytest.mark.parametrize("stored", [False, True])
async def test_a_pod_that_is_frozen_and_woken_often_is_so_at_once_each_time(node: Node, stored: bool) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        await node.until(lambda: is_ready(node, worker))
        began = node.clock.monotonic()
        for _ in range(12):
            for power, state in ((Power.STANDBY, UnitState.PAUSED), (Power.RUNNING, UnitState.RUNNING)):
                if stored:
                    await write(node, worker, power.value)
                else:
                    manager.ask_power(worker.uid, power, "sessions")
                await node.until(partial(is_in, node, state))
        # Each wait moves the clock by up to a second; delays of repeated actions would add up to half a minute.
        assert node.clock.monotonic() - began < 15
    assert "RuntimeWithoutEffect" not in node.sink.reasons()


async def test_a_wake_does_not_wait_for_the_end_of_a_hibernation(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        node.runtimes["one"].script("hibernate", hang=True)
        manager.ask_power(worker.uid, Power.HIBERNATED, "sessions")
        await node.until(lambda: count(node, "hibernate") == 2)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.until(lambda: not worker.is_unit_changing, seconds=1)
        assert is_in(node, UnitState.RUNNING)
        assert count(node, "hibernate") == 2


async def test_a_stop_does_not_wait_for_the_end_of_a_hibernation(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        node.runtimes["one"].script("hibernate", hang=True)
        manager.ask_power(worker.uid, Power.HIBERNATED, "sessions")
        await node.until(lambda: count(node, "hibernate") == 2)
        manager.remove("file", worker.uid)
        await node.until(lambda: not manager.workers, seconds=5)
