"""What users of a cluster ask of pods that are machines, written as one container with an annotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, Unsupported, names
from kubeletx.kube.types.core import (
    Container,
    ContainerStatus,
    EphemeralContainer,
    Pod,
    PodCondition,
    ResourceRequirements,
)
from kubeletx.pods.workloads.machine.hardware import sized
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-vm")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, workload_type="vm")


def a_machine(cpu: str = "1", memory: str = "1Gi") -> Pod:
    pod = a_pod("vm")
    amounts = {"cpu": cpu, "memory": memory}
    container = Container(
        name="c0", image="busybox", resources=ResourceRequirements(limits=amounts, requests=amounts)
    )
    metadata = replace(pod.metadata, annotations={names.WORKLOAD_TYPE: "vm"})
    return replace(pod, metadata=metadata, spec=replace(pod.spec, containers=(container,)))


def shown(node: Node) -> ContainerStatus:
    return node.services.board.statuses[UID].container_statuses[0]


def condition(node: Node, type_: str) -> PodCondition | None:
    found = node.services.board.statuses[UID].conditions
    return next((one for one in found if one.type == type_), None)


async def test_a_debug_container_is_refused_once_in_words_and_the_machine_goes_on(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_machine(), "api")
        debug = EphemeralContainer(name="debug", image="busybox")
        pod = a_machine()
        manager.update("api", replace(pod, spec=replace(pod.spec, ephemeral_containers=(debug,))))
        await node.until(lambda: node.services.board.statuses[UID].ephemeral_container_statuses)
        await node.clock.run_for(60)
        (status,) = node.services.board.statuses[UID].ephemeral_container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "RuntimeUnsupported"
        assert "kubectl exec" in (status.state.waiting.message or "")
        assert node.sink.reasons().count("RuntimeUnsupported") == 1
        assert node.runtimes["one"].counts["create_unit"] == 1
        assert node.alive() == ["vm/c0"]
        assert shown(node).ready
        start = manager.workers[UID].history.start
        assert start is not None
        assert "start machine c0" in [step.action for step in start.steps]
        manager.remove("api", UID)
        await node.until(lambda: not node.alive())


async def test_a_machine_that_may_not_grow_says_so_and_shows_what_it_has(node: Node) -> None:
    async with node.running(allocatable={"cpu": 4000, "memory": 8 << 30}) as manager:
        await node.start(a_machine(), "api")
        manager.update("api", a_machine(cpu="8"))
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert (pending.status, pending.reason) == ("True", "Infeasible")
        assert shown(node).resources.limits == {"cpu": "1", "memory": "1Gi"}
        assert shown(node).allocated_resources == {"cpu": "1", "memory": "1Gi"}
        await node.clock.run_for(60)
        assert node.sink.reasons().count("ResizeInfeasible") == 1
        manager.update("api", a_machine(cpu="2"))
        await node.until(lambda: condition(node, "PodResizePending") is None)
        await node.until(lambda: shown(node).resources.limits == {"cpu": "2", "memory": "1Gi"})


async def test_what_the_runtime_can_never_do_is_infeasible(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_machine(cpu="2"), "api")
        words = Unsupported("an emulated guest gives no processors back")
        node.runtimes["one"].script("update_resources", error=words, times=1000)
        manager.update("api", a_machine())
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert (pending.reason, pending.message) == ("Infeasible", str(words))
        assert shown(node).resources.limits["cpu"] == "2"


async def test_a_machine_that_waits_for_room_takes_only_what_it_has(node: Node) -> None:
    async with node.running(allocatable={"cpu": 4000, "memory": 4 << 30}) as manager:
        other = a_machine(memory="2Gi")
        other = replace(other, metadata=replace(other.metadata, name="other", uid="uid-other"))
        await node.start(a_machine(), "api")
        await node.start(other, "api")
        manager.update("api", a_machine(memory="3Gi"))
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert pending.reason == "Deferred"
        third = replace(a_machine(memory="512Mi"), metadata=replace(other.metadata, name="third", uid="u3"))
        await node.start(third, "api")
        for uid in ("uid-other", "u3"):
            manager.remove("api", PodUid(uid))
        await node.until(lambda: shown(node).resources.limits["memory"] == "3Gi")


def test_a_limit_that_the_machine_does_not_have_yet_leaves_its_request() -> None:
    wanted = ResourceRequirements(limits={"cpu": "1"}, requests={"cpu": "1"})
    assert sized(wanted, {}) == ResourceRequirements(limits={}, requests={"cpu": "1"})
