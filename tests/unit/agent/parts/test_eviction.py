"""The agent under pressure: which pods it ends, what it reports, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import PodUid, RuntimeName, UnitState
from kubeletx.kube.types.core import Container, Pod, PodStatus, ResourceRequirements, VirtualMachine
from kubeletx.kube.types.volumes import EmptyDirVolumeSource, Volume
from kubeletx.node.pressure import ImageDisk
from kubeletx.node.thresholds import Observation
from kubeletx.server.backend import AdminBackend
from kubeletx_testing.waiting import let_others_work
from tests.unit.agent.agent_model import AgentModel, a_pod

MI = 1 << 20
STATIC = """
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default}
spec: {containers: [{name: main, image: busybox}]}
"""


class Signals:
    """What the kernel is made to say: `left` by (signal, place), of 1000 MiB each."""

    def __init__(self, agent: AgentModel) -> None:
        agent.host = msgspec.structs.replace(agent.host, measure=self.measure)
        self.left: dict[tuple[str, str], int] = {}
        self.relieved_by: Callable[[], bool] = lambda: False
        self.disks: tuple[ImageDisk, ...] = ()

    def measure(
        self, _root: Path, _mounts: object, mono: float
    ) -> tuple[tuple[ImageDisk, ...], tuple[Observation, ...]]:
        if self.relieved_by():
            return self.disks, ()
        return self.disks, tuple(
            Observation(signal=signal, place=place, available=left, capacity=1000 * MI, at=mono)
            for (signal, place), left in self.left.items()
        )


@pytest.fixture
def signals(agent: AgentModel) -> Signals:
    return Signals(agent)


def using(agent: AgentModel, name: str, memory: int) -> None:
    """The pod's container takes so much memory from now on."""
    for runtime in agent.runtimes.values():
        backend = runtime.backend
        for unit in backend.units.values():
            if backend.sandboxes[unit.summary.sandbox_id].summary.name == name:
                unit.behaviour = replace(unit.behaviour, memory_bytes=memory)


def status(agent: AgentModel, name: str) -> PodStatus:
    worker = agent.parts.manager.find("default", name)
    assert worker is not None
    assert worker.facts.previous_status is not None
    return worker.facts.previous_status


async def condition(backend: AdminBackend, type: str) -> str:
    return next(c.status for c in (await backend.node.get_node()).status.conditions if c.type == type)


def ephemeral(limit: str) -> tuple[Container, ...]:
    resources = ResourceRequirements(limits={"ephemeral-storage": limit})
    return (Container(name="main", image="busybox", resources=resources),)


async def test_memory_pressure_ends_one_pod_at_a_time_until_it_is_over(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure("eviction", hard={"memory.available": "100Mi"})
    (agent.root / "manifests" / "static.yaml").write_text(STATIC)
    async with agent.running() as backend:
        for name, memory in (("small", 10), ("big", 30), ("huge", 90)):
            await agent.apply(a_pod(name))
            using(agent, name, memory * MI)
        await agent.until(lambda: agent.phase("static-node") == "Running")
        using(agent, "static-node", 900 * MI)
        ended = lambda: agent.phase("huge") == agent.phase("big") == "Failed"  # noqa: E731
        signals.left = {("memory.available", ""): 50 * MI}
        signals.relieved_by = ended
        await agent.until(ended)
        await agent.clock.run_for(60)
        assert (agent.phase("small"), agent.phase("static-node")) == ("Running", "Running")
        found = status(agent, "huge")
        assert found.reason == "Evicted"
        assert found.message == (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
            "Container main was using 90Mi, request is 0, has larger consumption of memory. "
        )
        target = next(c for c in found.conditions if c.type == "DisruptionTarget")
        assert (target.status, target.reason, target.message) == (
            "True",
            "TerminationByKubelet",
            found.message,
        )
        assert target.last_transition_time is not None
        assert found.container_statuses[0].state.terminated is not None
        assert await condition(backend, "MemoryPressure") == "True"
        events = {e.reason: e for e in await backend.node.list_events() if e.involved_object.name == "huge"}
        assert events["Evicted"].message == found.message
        assert events["Evicted"].type == "Warning"
        assert "EvictionThresholdMet" in {e.reason for e in await backend.node.list_events()}
        await agent.until(lambda: not agent.parts.registry.get("one").snapshot(_uid(agent, "huge")))
        await agent.clock.run_for(200)
        assert await condition(backend, "MemoryPressure") == "True"
        async with asyncio.timeout(60):
            while await condition(backend, "MemoryPressure") == "True":
                await agent.clock.run_for(5)
                await let_others_work()  # looks are on threads
        assert status(agent, "huge").reason == "Evicted"


def _uid(agent: AgentModel, name: str) -> PodUid:
    worker = agent.parts.manager.find("default", name)
    assert worker is not None
    return worker.uid


async def test_pods_that_request_nothing_are_not_admitted_under_memory_pressure(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure("eviction", hard={"memory.available": "100Mi"})
    signals.left = {("memory.available", ""): 50 * MI}
    async with agent.running() as backend:
        while await condition(backend, "MemoryPressure") == "False":
            await agent.clock.run_for(1)
            await let_others_work()
        await backend.pods.apply_pod(a_pod("new"))
        await agent.until(lambda: agent.phase("new") == "Failed")
        found = status(agent, "new")
        assert found.reason == "Evicted"
        assert found.message == "Pod was rejected: The node had condition: [MemoryPressure]. "
        assert agent.alive() == []


async def test_a_soft_threshold_waits_for_its_grace_period_and_gives_the_pod_its_own(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure(
        "eviction",
        soft={"memory.available": "100Mi"},
        soft_grace_periods={"memory.available": "1m"},
        max_pod_grace_seconds=20,
    )
    async with agent.running():
        await agent.apply(a_pod("web", termination_grace_period_seconds=600))
        signals.left = {("memory.available", ""): 50 * MI}
        await agent.clock.run_for(55)
        assert agent.phase("web") == "Running"
        await agent.until(lambda: agent.phase("web") == "Failed")
        worker = agent.parts.manager.find("default", "web")
        assert worker is not None
        assert worker.desired.deletion is not None
        assert worker.desired.deletion.grace_seconds == 20


async def test_a_store_that_is_short_costs_only_pods_of_its_runtimes(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure("eviction", hard={"imagefs.available": "10%"})
    signals.disks = (
        ImageDisk(place="disk 8:1", path="/one", runtimes=frozenset({RuntimeName("one")})),
        ImageDisk(place="disk 8:2", path="/two", runtimes=frozenset({RuntimeName("two")})),
    )
    async with agent.running() as backend:
        for name in ("one", "two"):
            await agent.apply(a_pod(f"on-{name}", runtime=name))
        pulled = {name: len(runtime.backend.images) for name, runtime in agent.runtimes.items()}
        signals.left = {("imagefs.available", "disk 8:1"): 900 * MI, ("imagefs.available", "disk 8:2"): MI}
        await agent.until(lambda: agent.phase("on-two") == "Failed")
        await agent.clock.run_for(60)
        assert agent.phase("on-one") == "Running"
        assert len(agent.runtimes["one"].backend.images) == pulled["one"]
        assert await condition(backend, "DiskPressure") == "True"
        assert (status(agent, "on-two").message or "").startswith(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 1Mi. "
        )


async def test_dead_containers_and_unused_images_go_before_any_pod(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure("eviction", hard={"imagefs.available": "10%"})
    agent.configure("images", minimum_gc_age_seconds=1.0)
    signals.disks = (ImageDisk(place="", path="/", runtimes=frozenset({RuntimeName("one")})),)
    async with agent.running():
        await agent.apply(a_pod("web"))
        await agent.parts.backend.pods.apply_pod(
            a_pod(
                "done",
                image="once",
                restart_policy="Never",
                containers=(Container(name="main", image="once"),),
            )
        )
        one = agent.runtimes["one"].backend
        await agent.until(lambda: agent.phase("done") == "Running")
        unit = next(
            u for u in one.units.values() if one.sandboxes[u.summary.sandbox_id].summary.name == "done"
        )
        one.exit_unit(unit.summary.id, 3)
        await agent.until(lambda: agent.phase("done") == "Failed")
        before = status(agent, "done")
        signals.left = {("imagefs.available", ""): MI}
        signals.relieved_by = lambda: unit.summary.id not in one.units
        await agent.until(lambda: unit.summary.id not in one.units)
        await agent.clock.run_for(60)
        assert agent.phase("web") == "Running"
        assert status(agent, "done") == before
        assert all(u.summary.state is UnitState.RUNNING for u in one.units.values())


@pytest.mark.parametrize("limited", ["volume", "container"])
async def test_a_pod_over_a_limit_of_its_own_is_ended_without_any_pressure(
    agent: AgentModel, signals: Signals, limited: str
) -> None:
    volume = Volume(name="data", empty_dir=EmptyDirVolumeSource(size_limit="1Mi"))
    spec: dict[str, Any] = {"volumes": (volume,)}
    if limited == "container":
        spec = {"containers": ephemeral("1Mi")}
    async with agent.running():
        made: Pod = await agent.apply(a_pod("web", **spec))
        await agent.clock.run_for(60)
        assert agent.phase("web") == "Running"
        if limited == "volume":
            place = agent.config.root_dir / "pods" / made.uid / "volumes/kubernetes.io~empty-dir/data"
        else:
            place = agent.config.logs.pod_logs_dir / f"default_web_{made.uid}/main"
        place.mkdir(exist_ok=True)
        (place / "file").write_bytes(b"x" * (2 * MI))
        await agent.until(lambda: agent.phase("web") == "Failed")
        assert status(agent, "web").message == (
            'Usage of EmptyDir volume "data" exceeds the limit "1Mi". '
            if limited == "volume"
            else "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
        )
        assert status(agent, "web").reason == "Evicted"
        assert "DisruptionTarget" not in [one.type for one in status(agent, "web").conditions]
        await agent.until(lambda: not (place / "file").exists() or limited == "container")


async def test_limits_of_pods_can_be_switched_off(agent: AgentModel, signals: Signals) -> None:
    agent.configure("eviction", local_limits=False)
    async with agent.running():
        made = await agent.apply(a_pod("web", containers=ephemeral("1Mi")))
        place = agent.config.logs.pod_logs_dir / f"default_web_{made.uid}/main"
        place.mkdir(exist_ok=True)
        (place / "file").write_bytes(b"x" * (2 * MI))
        await agent.clock.run_for(120)
        assert agent.phase("web") == "Running"


async def test_a_runtime_that_does_not_answer_costs_none_of_its_pods(
    agent: AgentModel, signals: Signals
) -> None:
    agent.configure("eviction", hard={"memory.available": "100Mi"})
    async with agent.running():
        await agent.apply(a_pod("one", runtime="one"))
        await agent.apply(a_pod("two", runtime="two"))
        agent.runtimes["two"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("two").state.reachable)
        signals.left = {("memory.available", ""): MI}
        await agent.until(lambda: agent.phase("one") == "Failed")
        await agent.clock.run_for(60)
        assert agent.phase("two") == "Running"


async def test_a_machine_is_evicted_for_what_its_emulator_uses(tmp_path: Path) -> None:
    agent = AgentModel(tmp_path, names=("one", "kvm"))
    signals = Signals(agent)
    agent.configure("eviction", hard={"memory.available": "100Mi"})
    resources = ResourceRequirements(requests={"memory": "10Mi"}, limits={"memory": "10Mi"})
    machine = VirtualMachine(name="testVM", image="busybox", resources=resources)
    async with agent.running():
        await agent.apply(a_pod("web"))
        await agent.apply(a_pod("vm", containers=(), virtual_machine=machine))
        using(agent, "web", 5 * MI)
        using(agent, "vm", 90 * MI)
        signals.left = {("memory.available", ""): 50 * MI}
        signals.relieved_by = lambda: agent.phase("vm") == "Failed"
        await agent.until(signals.relieved_by)
        assert (status(agent, "vm").message or "").endswith(
            "Container testvm was using 90Mi, request is 10Mi, has larger consumption of memory. "
        )
        assert agent.phase("web") == "Running"
        assert agent.alive("kvm") == []
