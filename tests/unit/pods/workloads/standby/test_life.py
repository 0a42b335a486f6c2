"""Standby beside the other rules of a pod's life on the fake runtime: probes, hooks, restarts, init containers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, UnitState
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.types.core import (
    Container,
    EphemeralContainer,
    ExecAction,
    Lifecycle,
    LifecycleHandler,
    Pod,
    Probe,
)
from kubeletx.pods.workloads.power import Power
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import count, is_in, is_ready, states

TRUE = ExecAction(command=("true",))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def calls(node: Node, *methods: str) -> list[str]:
    """The calls of these methods, oldest first, each as ``method container``."""
    runtime = node.runtimes["one"]
    units = {unit.summary.id: unit.summary.name for unit in runtime.backend.units.values()}
    journal = [one for one in runtime.journal if one.method in methods]
    return [f"{one.method} {units.get(one.key, one.key)}" for one in journal]


def pod_of(*containers: Container, **spec: object) -> Pod:
    pod = a_pod()
    return set_defaults(replace(pod, spec=replace(pod.spec, containers=containers, **spec)))


PROBED = Container(
    name="c",
    image="busybox",
    liveness_probe=Probe(exec=TRUE, period_seconds=2, failure_threshold=2),
    readiness_probe=Probe(exec=TRUE, period_seconds=2),
)


async def test_no_probe_runs_in_a_frozen_pod_and_both_run_again_after_the_wake(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(pod_of(PROBED))
        await node.until(lambda: is_ready(node, worker))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        asked = count(node, "exec_sync")
        await node.clock.run_for(120)
        assert count(node, "exec_sync") == asked
        assert not is_ready(node, worker)
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.until(partial(is_in, node, UnitState.RUNNING))
        await node.until(lambda: is_ready(node, worker))
        await node.until(lambda: count(node, "exec_sync") >= asked + 4)
    assert "Unhealthy" not in node.sink.reasons()
    assert count(node, "stop_unit") == 0


async def test_a_failure_before_the_freeze_and_one_after_the_wake_do_not_kill_the_container(
    node: Node,
) -> None:
    failing = Probe(exec=ExecAction(command=("false",)), period_seconds=2, failure_threshold=2)
    async with node.running() as manager:
        worker = await node.start(pod_of(replace(PROBED, readiness_probe=None, liveness_probe=failing)))
        for number in range(1, 4):
            await node.until(lambda number=number: node.sink.reasons().count("Unhealthy") == number)
            manager.ask_power(worker.uid, Power.STANDBY, "sessions")
            await node.until(partial(is_in, node, UnitState.PAUSED))
            manager.ask_power(worker.uid, Power.RUNNING, "sessions")
            await node.until(partial(is_in, node, UnitState.RUNNING))
        assert count(node, "stop_unit") == 0
        await node.until(lambda: count(node, "stop_unit") == 1)
    assert node.sink.reasons().count("Unhealthy") == 5, "two failures in a row after the last wake"


async def test_no_probe_runs_while_a_freeze_is_in_flight(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(pod_of(PROBED))
        await node.until(lambda: is_ready(node, worker))
        stuck = node.runtimes["one"].script("freeze", hang=True)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(lambda: count(node, "freeze") == 1)
        asked = count(node, "exec_sync")
        for _ in range(20):
            await node.clock.run_for(0.01)
        assert node.manager.workers[worker.uid].facts.probes_held == {"c"}
        assert count(node, "exec_sync") == asked
        stuck.release()
        await node.until(partial(is_in, node, UnitState.PAUSED))
        assert worker.facts.probes_held == frozenset()


async def test_a_pod_is_not_frozen_before_its_init_containers_have_ended_and_its_hook_has_run(
    node: Node,
) -> None:
    hook = Lifecycle(post_start=LifecycleHandler(exec=TRUE))
    pod = pod_of(
        Container(name="c", image="busybox", lifecycle=hook),
        init_containers=(Container(name="setup", image="busybox"),),
    )
    async with node.running() as manager:
        manager.update("file", pod)
        await node.until(lambda: node.alive() == ["web/setup"])
        manager.ask_power(pod.uid, Power.STANDBY, "sessions")
        await node.clock.run_for(30)
        assert (count(node, "freeze"), states(node)) == (0, {UnitState.RUNNING})
        stuck = node.runtimes["one"].script("exec_sync", hang=True)
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("setup"), 0)
        await node.until(lambda: count(node, "exec_sync") == 1)
        assert count(node, "freeze") == 0
        stuck.release()
        await node.until(partial(is_in, node, UnitState.PAUSED))
    assert calls(node, "exec_sync", "freeze") == ["exec_sync c", "freeze c"]


async def test_a_container_that_is_restarted_while_others_are_frozen_wakes_them_until_it_is_ready(
    node: Node,
) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod(containers=2))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("c0"), 137)
        await node.until(lambda: count(node, "create_unit") == 3)
        await node.until(lambda: count(node, "freeze") == 4)
        await node.until(partial(is_in, node, UnitState.PAUSED))
        assert len(node.alive()) == 2
    assert calls(node, "thaw", "start_unit")[2:] == ["thaw c1", "start_unit c0"]


async def test_a_container_that_ended_for_good_leaves_the_others_frozen(node: Node) -> None:
    pod = replace(a_pod(containers=2), spec=replace(a_pod(containers=2).spec, restart_policy="Never"))
    async with node.running() as manager:
        worker = await node.start(pod)
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("c0"), 137)
        await node.clock.run_for(30)
        assert node.alive() == ["web/c1"]
        assert is_in(node, UnitState.PAUSED)


async def test_one_container_that_cannot_be_frozen_wakes_all_and_is_tried_again_with_back_off(
    node: Node,
) -> None:
    sidecar = Container(name="s", image="busybox", restart_policy="Always")
    pod = pod_of(Container(name="c", image="busybox"), init_containers=(sidecar,))
    async with node.running() as manager:
        worker = await node.start(pod)
        await node.until(lambda: is_ready(node, worker))
        backend = node.runtimes["one"].backend
        node.runtimes["one"].script("freeze", error=Conflict("thread 7 is busy"), key=backend.find_unit("s"))
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        times: list[float] = []

        def attempts(number: int) -> bool:
            tried = calls(node, "freeze").count("freeze s")
            if tried > len(times):
                times.append(node.clock.monotonic())
            return tried >= number

        await node.until(partial(attempts, 4), seconds=600)
        assert times[-1] - times[-2] > times[1] - times[0], "the delays grow"
        await node.until(partial(is_in, node, UnitState.RUNNING))
        node.runtimes["one"].scripts.clear()
        await node.until(partial(is_in, node, UnitState.PAUSED), seconds=600)
    assert calls(node, "freeze", "thaw")[:4] == ["freeze c", "freeze s", "thaw c", "freeze c"]
    assert node.sink.reasons().count("FailedPower") >= 1


async def test_an_ephemeral_container_wakes_the_pod_to_start_and_is_frozen_with_it(node: Node) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        manager.ask_power(worker.uid, Power.STANDBY, "sessions")
        await node.until(partial(is_in, node, UnitState.PAUSED))
        debug = EphemeralContainer(name="debug", image="busybox")
        pod = worker.desired.pod
        manager.update("file", replace(pod, spec=replace(pod.spec, ephemeral_containers=(debug,))))
        await node.until(lambda: "web/debug" in node.alive())
        await node.until(partial(is_in, node, UnitState.PAUSED))
        assert set(node.alive()) == {"web/c0", "web/debug"}
        manager.ask_power(worker.uid, Power.RUNNING, "sessions")
        await node.until(partial(is_in, node, UnitState.RUNNING))
    assert calls(node, "thaw", "start_unit")[1:] == ["thaw c0", "start_unit debug", "thaw debug", "thaw c0"]
