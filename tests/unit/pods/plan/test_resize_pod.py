"""The resources of the pod as a whole change while it runs: its cgroup, and containers that live by its limits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, Unavailable
from kubeletx.kube.requests import enforceable_limits
from kubeletx.kube.types.core import Container, Pod, PodCondition, PodStatus, ResourceRequirements
from kubeletx.testing.fake_backend import FakeUnit
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")
MI = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def sized(memory: str, *, cpu: str = "100m", own: str = "") -> Pod:
    """Two containers in a pod of this size; the second has the memory limit `own`, if any."""
    pod = a_pod()
    limits = {"memory": own} if own else {}
    containers = (
        Container(name="c0", image="busybox"),
        Container(name="c1", image="busybox", resources=ResourceRequirements(limits=limits)),
    )
    whole = ResourceRequirements(limits={"memory": memory}, requests={"cpu": cpu, "memory": "16Mi"})
    return replace(pod, spec=replace(pod.spec, containers=containers, resources=whole))


def status(node: Node) -> PodStatus:
    return node.services.board.statuses[UID]


def condition(node: Node, type_: str) -> PodCondition | None:
    return next((one for one in status(node).conditions if one.type == type_), None)


def units(node: Node) -> list[FakeUnit]:
    """The pod's units that are alive, in order of their names."""
    found = node.runtimes["one"].backend.units.values()
    alive = [one for one in found if one.summary.state.is_alive and one.summary.uid == UID]
    return sorted(alive, key=lambda one: one.summary.name)


def memory_of(node: Node) -> list[int | None]:
    """Their memory limits."""
    return [one.resources.memory_limit_bytes for one in units(node) if one.resources is not None]


class Cgroups:
    """Of pods; remembers the memory limit that each form of a pod was given."""

    def __init__(self) -> None:
        self.memory: list[int] = []

    async def create(self, pod: Pod) -> str:
        self.memory.append(enforceable_limits(pod.spec)["memory"].value // MI)
        return "/pods"

    async def remove(self, pod: Pod) -> None:
        """Nothing to remove."""


@pytest.fixture
def cgroups() -> Cgroups:
    return Cgroups()


async def test_a_pod_grows_and_shrinks_with_the_containers_that_live_by_its_limit(
    node: Node, cgroups: Cgroups
) -> None:
    node.cgroups = cgroups
    async with node.running() as manager:
        await node.start(sized("64Mi", own="32Mi"), "api")
        assert memory_of(node) == [64 * MI, 32 * MI]
        assert status(node).resources.limits == {"memory": "64Mi"}
        assert status(node).allocated_resources == {"cpu": "100m", "memory": "16Mi"}
        for memory in (128, 48):
            manager.update("api", sized(f"{memory}Mi", cpu="200m", own="32Mi"))
            await node.until(lambda memory=memory: status(node).resources.limits["memory"] == f"{memory}Mi")
            assert memory_of(node) == [memory * MI, 32 * MI]
            await node.until(lambda: condition(node, "PodResizeInProgress") is None)
        assert status(node).allocated_resources["cpu"] == "200m"
        assert [one.restart_count for one in status(node).container_statuses] == [0, 0]
    assert cgroups.memory == [64, 128, 128, 128, 48]
    assert node.sink.reasons().count("ResizeCompleted") == 2


async def test_pod_and_container_shrink_together_the_container_first(node: Node, cgroups: Cgroups) -> None:
    node.cgroups = cgroups
    async with node.running() as manager:
        await node.start(sized("128Mi", own="96Mi"), "api")
        manager.update("api", sized("64Mi", own="32Mi"))
        await node.until(lambda: memory_of(node) == [64 * MI, 32 * MI] and cgroups.memory[-1] == 64)
        await node.until(lambda: condition(node, "PodResizeInProgress") is None)


async def test_what_does_not_fit_waits_and_what_never_will_is_infeasible(node: Node) -> None:
    async with node.running(allocatable={"cpu": 1000}) as manager:
        other = a_pod("other", containers=1)
        whole = ResourceRequirements(requests={"cpu": "500m"})
        await node.start(replace(other, spec=replace(other.spec, resources=whole)), "api")
        await node.start(sized("64Mi", cpu="200m"), "api")
        manager.update("api", sized("128Mi", cpu="800m"))
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert pending.reason == "Deferred"
        assert status(node).allocated_resources["cpu"] == "200m"
        assert memory_of(node) == [64 * MI, 64 * MI]
        (unit,) = (one for one in units(node) if one.summary.name == "c0")
        node.runtimes["one"].backend.exit_unit(unit.summary.id, 1)
        await node.until(lambda: status(node).container_statuses[0].restart_count == 1)
        await node.until(lambda: memory_of(node) == [64 * MI, 64 * MI])
        manager.remove("api", PodUid("uid-other"))
        await node.until(lambda: condition(node, "PodResizePending") is None)
        await node.until(lambda: memory_of(node) == [128 * MI, 128 * MI])
        manager.update("api", sized("128Mi", cpu="2"))
        await node.until(lambda: (c := condition(node, "PodResizePending")) and c.reason == "Infeasible")


async def test_a_limit_below_what_is_used_waits_until_it_is_freed(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("128Mi"), "api")
        unit = units(node)[0]
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=60 * MI)
        manager.update("api", sized("48Mi"))
        await node.until(lambda: (c := condition(node, "PodResizeInProgress")) and c.reason == "Error")
        reported = condition(node, "PodResizeInProgress")
        assert reported is not None
        assert reported.message == (
            f"attempting to set memory limit ({48 * MI}) below current usage ({61 * MI})"
        )
        assert memory_of(node) == [128 * MI, 128 * MI]
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=MI)
        await node.until(lambda: memory_of(node) == [48 * MI, 48 * MI])


async def test_a_containers_own_change_does_not_bring_a_limit_of_the_pod_that_was_refused(node: Node) -> None:
    def with_cpu(pod: Pod, cpu: str) -> Pod:
        first, second = pod.spec.containers
        first = replace(first, resources=ResourceRequirements(limits={"cpu": cpu}))
        return replace(pod, spec=replace(pod.spec, containers=(first, second)))

    async with node.running() as manager:
        await node.start(with_cpu(sized("128Mi"), "100m"), "api")
        unit = units(node)[0]
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=60 * MI)
        manager.update("api", with_cpu(sized("48Mi"), "200m"))
        await node.until(lambda: status(node).container_statuses[0].resources.limits.get("cpu") == "200m")
        await node.clock.run_for(5)
        assert memory_of(node) == [128 * MI, 128 * MI]
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=MI)
        await node.until(lambda: memory_of(node) == [48 * MI, 48 * MI])


async def test_a_refusal_is_reported_and_tried_again(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("64Mi"), "api")
        node.runtimes["one"].script("update_resources", error=Unavailable("device or resource busy"), times=2)
        manager.update("api", sized("32Mi"))
        await node.until(lambda: (c := condition(node, "PodResizeInProgress")) and c.reason == "Error")
        await node.until(lambda: memory_of(node) == [32 * MI, 32 * MI])
        await node.until(lambda: condition(node, "PodResizeInProgress") is None)


async def test_what_was_given_survives_the_agent_and_a_change_meanwhile_is_seen(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("64Mi"), "api")
        manager.update("api", sized("128Mi"))
        await node.until(lambda: memory_of(node) == [128 * MI, 128 * MI])
        await node.until(lambda: status(node).resources.limits["memory"] == "128Mi")
    async with node.running() as manager:
        manager.update("api", sized("64Mi"))  # back to what the pod was made with
        await node.until(lambda: memory_of(node) == [64 * MI, 64 * MI])
        assert [one.restart_count for one in status(node).container_statuses] == [0, 0]
