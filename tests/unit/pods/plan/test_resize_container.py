"""Containers whose CPU and memory change while they run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import PodUid, Unavailable, Unsupported
from kubeletx.kube.types.core import (
    Container,
    ContainerResizePolicy,
    Pod,
    PodCondition,
    ResourceRequirements,
)
from kubeletx.pods.model.facts import Granted
from kubeletx.pods.model.sizes import is_same, resources_text
from kubeletx.pods.workloads.overrides import PodOverrides, decode, encode
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def sized(cpu: str, memory: str, *, restart: str = "") -> Pod:
    """A pod of one container with these as requests and limits; `restart`: the resource that needs one."""
    policy = (ContainerResizePolicy(resource_name=restart, restart_policy="RestartContainer"),)
    resources = ResourceRequirements(
        limits={"cpu": cpu, "memory": memory}, requests={"cpu": cpu, "memory": memory}
    )
    container = Container(
        name="c0", image="busybox", resources=resources, resize_policy=policy if restart else ()
    )
    pod = a_pod()
    return replace(pod, spec=replace(pod.spec, containers=(container,)))


def shown(node: Node) -> tuple[dict[str, str], dict[str, str], int]:
    """Limits and allocated resources of the status, and the restart count."""
    (status,) = node.services.board.statuses[UID].container_statuses
    return status.resources.limits, status.allocated_resources, status.restart_count


def condition(node: Node, type_: str) -> PodCondition | None:
    found = node.services.board.statuses[UID].conditions
    return next((one for one in found if one.type == type_), None)


def memory_of(node: Node) -> list[int | None]:
    """Memory limits of all units that are alive on the runtime."""
    units = node.runtimes["one"].backend.units.values()
    return [
        unit.resources.memory_limit_bytes
        for unit in units
        if unit.summary.state.is_alive and unit.resources is not None
    ]


async def test_a_container_grows_and_shrinks_without_a_restart(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        for cpu, memory, size in (("200m", "128Mi", 128 << 20), ("50m", "32Mi", 32 << 20)):
            manager.update("api", sized(cpu, memory))
            await node.until(lambda size=size: memory_of(node) == [size])
            await node.until(lambda memory=memory: shown(node)[0]["memory"] == memory)
            assert shown(node) == ({"cpu": cpu, "memory": memory}, {"cpu": cpu, "memory": memory}, 0)
            await node.until(lambda: condition(node, "PodResizeInProgress") is None)
        assert node.sink.reasons().count("ResizeCompleted") == 2


async def test_the_pod_reports_what_its_containers_were_given_together(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        given = lambda: node.services.board.statuses[UID].allocated_resources  # noqa: E731
        assert given() == {"cpu": "100m", "memory": "64Mi"}
        manager.update("api", sized("200m", "64Mi"))
        await node.until(lambda: given() == {"cpu": "200m", "memory": "64Mi"})


async def test_the_same_amount_in_other_words_is_not_a_resize(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        manager.update("api", sized("0.1", "67108864"))
        await node.clock.run_for(5)
        assert node.runtimes["one"].counts["update_resources"] == 0


async def test_a_resource_whose_policy_says_so_is_changed_by_a_restart(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi", restart="memory"), "api")
        manager.update("api", sized("200m", "64Mi", restart="memory"))
        await node.until(lambda: shown(node)[0]["cpu"] == "200m")
        assert shown(node)[2] == 0
        shown_before = []
        stop = node.runtimes["one"].stop_unit

        async def stop_unit(*args: Any) -> None:
            await node.clock.sleep(1)
            shown_before.append(shown(node))
            shown_before.append(condition(node, "PodResizeInProgress") is not None)
            await stop(*args)

        node.runtimes["one"].stop_unit = stop_unit  # type: ignore[method-assign]
        manager.update("api", sized("200m", "128Mi", restart="memory"))
        await node.until(lambda: shown(node)[2] == 1 and memory_of(node) == [128 << 20])
        assert node.runtimes["one"].counts["update_resources"] == 1
    old, new = {"cpu": "200m", "memory": "64Mi"}, {"cpu": "200m", "memory": "128Mi"}
    assert shown_before == [(old, new, 0), True], "the old limits until the restart, the new allocation"


async def test_an_init_container_is_resized_while_it_runs(node: Node) -> None:
    def with_init(memory: str) -> Pod:
        pod = sized("100m", "64Mi")
        (one,) = sized("100m", memory).spec.containers
        return replace(pod, spec=replace(pod.spec, init_containers=(replace(one, name="first"),)))

    async with node.running() as manager:
        manager.update("api", with_init("32Mi"))
        await node.until(lambda: memory_of(node) == [32 << 20])
        manager.update("api", with_init("128Mi"))
        await node.until(lambda: memory_of(node) == [128 << 20])
        first = lambda: node.services.board.statuses[UID].init_container_statuses[0]  # noqa: E731
        await node.until(lambda: first().resources.limits["memory"] == "128Mi")
        assert first().restart_count == 0
        await node.until(lambda: condition(node, "PodResizeInProgress") is None)


class Cgroups:
    """Of pods; remembers the memory limit that each form of a pod was given."""

    def __init__(self) -> None:
        self.memory: list[str] = []

    async def create(self, pod: Pod) -> str:
        self.memory.append(pod.spec.containers[0].resources.limits["memory"])
        return "/pods"

    async def remove(self, pod: Pod) -> None:
        """Nothing to remove."""


@pytest.mark.parametrize("restart", ["", "memory"])
async def test_a_pods_own_cgroup_shrinks_after_its_container_did(node: Node, restart: str) -> None:
    cgroups = node.cgroups = Cgroups()
    async with node.running() as manager:
        await node.start(sized("100m", "128Mi", restart=restart), "api")
        manager.update("api", sized("100m", "64Mi", restart=restart))
        await node.until(lambda: memory_of(node) == [64 << 20])
        await node.until(lambda: cgroups.memory[-1] == "64Mi")
    assert cgroups.memory == ["128Mi", "128Mi", "64Mi"]


async def test_what_does_not_fit_now_waits_and_comes_when_others_have_gone(node: Node) -> None:
    async with node.running(allocatable={"memory": 256 << 20, "cpu": 4000}) as manager:
        other = replace(
            sized("100m", "100Mi"), metadata=replace(sized("1", "1").metadata, name="other", uid="uid-other")
        )
        await node.start(other, "api")
        await node.start(sized("100m", "64Mi"), "api")
        manager.update("api", sized("100m", "200Mi"))
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert (pending.status, pending.reason) == ("True", "Deferred")
        assert "memory" in (pending.message or "")
        assert shown(node)[1]["memory"] == "64Mi"
        assert memory_of(node).count(64 << 20) == 1
        manager.remove("api", PodUid("uid-other"))
        await node.until(lambda: memory_of(node) == [200 << 20])
        await node.until(lambda: condition(node, "PodResizePending") is None)


async def test_what_can_never_fit_is_infeasible_and_a_restart_keeps_what_was_granted(node: Node) -> None:
    async with node.running(allocatable={"memory": 256 << 20}) as manager:
        await node.start(sized("100m", "64Mi"), "api")
        manager.update("api", sized("100m", "1Gi"))
        await node.until(lambda: condition(node, "PodResizePending") is not None)
        pending = condition(node, "PodResizePending")
        assert pending is not None
        assert pending.reason == "Infeasible"
        (unit,) = node.runtimes["one"].backend.units.values()
        node.runtimes["one"].backend.exit_unit(unit.summary.id, 1)
        await node.until(lambda: shown(node)[2] == 1 and bool(memory_of(node)))
        assert memory_of(node) == [64 << 20]


async def test_a_runtime_that_refuses_is_asked_again_and_the_pod_says_why(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        node.runtimes["one"].script("update_resources", error=Unavailable("device or resource busy"), times=2)
        manager.update("api", sized("100m", "32Mi"))
        await node.until(lambda: condition(node, "PodResizeInProgress") is not None)
        await node.until(lambda: memory_of(node) == [32 << 20])
        await node.until(lambda: condition(node, "PodResizeInProgress") is None)


async def test_what_a_runtime_will_never_give_is_not_taken_from_others(node: Node) -> None:
    async with node.running(allocatable={"cpu": 1000}) as manager:
        await node.start(sized("100m", "64Mi"), "api")
        node.runtimes["one"].script("update_resources", error=Unsupported("its cgroup is not ours"))
        manager.update("api", sized("900m", "64Mi"))
        await node.until(lambda: condition(node, "PodResizeInProgress") is not None)
        other = a_pod("other")
        container = replace(
            other.spec.containers[0], resources=ResourceRequirements(requests={"cpu": "800m"})
        )
        await node.start(replace(other, spec=replace(other.spec, containers=(container,))), "api")


async def test_memory_in_use_is_not_asked_about_unless_its_limit_sinks(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        asked = node.runtimes["one"].counts["list_unit_stats"]
        (unit,) = node.runtimes["one"].backend.units.values()
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=64 << 20)
        for cpu, memory in (("200m", "64Mi"), ("200m", "128Mi")):
            manager.update("api", sized(cpu, memory))
            await node.until(lambda cpu=cpu, memory=memory: shown(node)[1] == {"cpu": cpu, "memory": memory})
        assert node.runtimes["one"].counts["list_unit_stats"] == asked
        manager.update("api", sized("200m", "64Mi"))
        await node.until(lambda: condition(node, "PodResizeInProgress") is not None)
        unit.behaviour = dataclasses.replace(unit.behaviour, memory_bytes=1 << 20)
        await node.until(lambda: memory_of(node) == [64 << 20])


async def test_what_was_granted_survives_the_agent_and_a_change_meanwhile_is_seen(node: Node) -> None:
    async with node.running() as manager:
        await node.start(sized("100m", "64Mi"), "api")
        manager.update("api", sized("100m", "128Mi"))
        await node.until(lambda: memory_of(node) == [128 << 20])
        await node.until(lambda: shown(node)[1]["memory"] == "128Mi")
    async with node.running() as manager:
        manager.update("api", sized("100m", "64Mi"))  # back to what the container was made with
        await node.until(lambda: memory_of(node) == [64 << 20])
        assert shown(node)[2] == 0


amounts = st.integers(min_value=1, max_value=1 << 40)


@given(amounts, amounts)
def test_amounts_are_compared_and_not_their_words(cpu: int, memory: int) -> None:
    one = ResourceRequirements(limits={"cpu": f"{cpu}m", "memory": str(memory)})
    other = ResourceRequirements(limits={"cpu": str(cpu / 1000) if cpu % 1000 == 0 else f"{cpu}m", "memory": f"{memory}"})  # fmt: skip
    assert is_same(one, other)
    assert not is_same(one, replace(one, limits={**one.limits, "memory": str(memory + 1)}))


def test_what_was_granted_is_read_as_it_was_written() -> None:
    resources = ResourceRequirements(limits={"memory": "1Gi"}, requests={"cpu": "1"})
    overrides = PodOverrides(granted={"c0": Granted(unit_id="u", resources=resources, restart=True)})  # type: ignore[arg-type]
    assert decode(encode(overrides)) == overrides
    assert (
        resources_text(replace(resources, limits={"memory": "1Gi", "x/y": "1"}))
        == '{"limits":{"memory":"1Gi"},"requests":{"cpu":"1"}}'
    )
