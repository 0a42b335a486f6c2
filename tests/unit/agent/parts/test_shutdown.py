"""The host goes down: pods end in order, the host waits for them, and what is this node's own comes back."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, PodUid, TimedOut
from kubeletx.kube.types.core import PodStatus
from kubeletx.server.backend import AdminBackend
from tests.unit.agent.agent_model import AgentModel, a_pod
from tests.unit.agent.logind_model import Lock

STATIC = """
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default}
spec: {priorityClassName: system-node-critical, containers: [{name: main, image: busybox}]}
"""


@pytest.fixture
def watched(agent: AgentModel) -> AgentModel:
    """An agent that gives pods 40 s in all, 10 of them to critical ones."""
    agent.host = replace(agent.host, logind=Lock)
    agent.configure("shutdown", grace_seconds=40.0, critical_grace_seconds=10.0)
    return agent


def status(agent: AgentModel, name: str) -> PodStatus:
    worker = agent.parts.manager.find("default", name)
    assert worker is not None
    assert worker.facts.previous_status is not None
    return worker.facts.previous_status


async def ready(backend: AdminBackend) -> tuple[str, str]:
    last = (await backend.node.get_node()).status.conditions[-1]
    return last.status, last.message or ""


def api_pod(name: str) -> PodUid:
    return PodUid(f"uid-of-{name}")


def want_api_pod(agent: AgentModel, name: str) -> None:
    pod = a_pod(name)
    agent.parts.manager.update("api", replace(pod, metadata=replace(pod.metadata, uid=api_pod(name))))


async def test_pods_end_in_order_and_the_host_waits_for_them(watched: AgentModel) -> None:
    agent = watched
    (agent.root / "manifests" / "static.yaml").write_text(STATIC)
    async with agent.running() as backend:
        await agent.apply(a_pod("quick"))
        await agent.apply(a_pod("slow", termination_grace_period_seconds=600))
        await agent.until(lambda: agent.phase("static-node") == "Running" and Lock.one.is_held)
        assert Lock.one.delay_seconds == 40
        for unit in agent.runtimes["one"].backend.units.values():
            sandbox = agent.runtimes["one"].backend.sandboxes[unit.summary.sandbox_id]
            if sandbox.summary.name == "slow":
                unit.behaviour = dataclasses.replace(unit.behaviour, ignores_stop=True)
        began = agent.clock.monotonic()
        Lock.one.tell(True)
        await agent.until(lambda: agent.phase("quick") == "Failed")
        assert (await ready(backend))[0] == "False"
        assert "node is shutting down" in (await ready(backend))[1]
        assert agent.phase("static-node") == "Running"
        await backend.pods.apply_pod(a_pod("late"))
        await agent.until(lambda: agent.phase("late") == "Failed")
        assert status(agent, "late").reason == "NodeShutdown"
        assert (
            status(agent, "late").message
            == "Pod was rejected: Pod was rejected as the node is shutting down."
        )
        await agent.until(lambda: agent.phase("slow") == "Failed")
        assert 30 <= agent.clock.monotonic() - began < 40
        await agent.until(lambda: agent.phase("static-node") == "Failed" and not Lock.one.is_held)
        found = status(agent, "quick")
        assert found.reason == "Terminated"
        assert found.message == "Pod was terminated in response to imminent node shutdown."
        target = next(c for c in found.conditions if c.type == "DisruptionTarget")
        assert (target.status, target.reason) == ("True", "TerminationByKubelet")
        assert agent.alive() == []
        events = {e.reason: e for e in await backend.node.list_events() if e.involved_object.kind == "Node"}
        assert events["Shutdown"].message == "Shutdown manager detected shutdown event"


async def test_after_the_host_is_back_pods_of_this_node_run_again_and_those_of_a_cluster_do_not(
    watched: AgentModel,
) -> None:
    agent = watched
    (agent.root / "manifests" / "static.yaml").write_text(STATIC)
    async with agent.running():
        await agent.apply(a_pod("applied"))
        want_api_pod(agent, "theirs")
        await agent.until(lambda: agent.phase("static-node") == agent.phase("theirs") == "Running")
        Lock.one.tell(True)
        await agent.until(lambda: agent.alive() == [] and not Lock.one.is_held)
    async with agent.running():
        await agent.until(lambda: agent.phase("static-node") == agent.phase("applied") == "Running")
        assert status(agent, "applied").reason is None
        assert not [c for c in status(agent, "applied").conditions if c.type == "DisruptionTarget"]
        await agent.clock.run_for(60)
        assert (agent.phase("theirs"), status(agent, "theirs").reason) == ("Failed", "Terminated")


async def test_a_shutdown_that_is_called_off_opens_the_node_again(watched: AgentModel) -> None:
    agent = watched
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        await agent.until(lambda: Lock.one.is_held)
        Lock.one.tell(True)
        await agent.until(lambda: not Lock.one.is_held)
        Lock.one.tell(False)
        await agent.until(lambda: Lock.one.is_held)
        assert (await ready(backend))[0] == "True"
        await agent.apply(a_pod("next"))


async def test_a_shutdown_that_is_called_off_while_the_bus_is_away_opens_the_node_again(
    watched: AgentModel,
) -> None:
    agent = watched
    async with agent.running() as backend:
        await agent.until(lambda: Lock.one.is_held)
        Lock.one.tell(True)
        await agent.until(lambda: not Lock.one.is_held)
        assert (await ready(backend))[0] == "False"
        Lock.one.tell(None)
        await agent.until(lambda: Lock.one.is_held)
        await agent.apply(a_pod("next"))
        assert (await ready(backend))[0] == "True"


async def test_a_pod_that_is_being_deleted_has_no_more_time_than_its_group(watched: AgentModel) -> None:
    agent = watched
    async with agent.running():
        await agent.apply(a_pod("slow", termination_grace_period_seconds=600))
        for unit in agent.runtimes["one"].backend.units.values():
            unit.behaviour = dataclasses.replace(unit.behaviour, ignores_stop=True)
        slow = agent.parts.manager.find("default", "slow")
        assert slow is not None
        agent.parts.manager.remove("applied", slow.uid)
        await agent.until(lambda: Lock.one.is_held and agent.runtimes["one"].counts["stop_unit"] == 1)
        began = agent.clock.monotonic()
        Lock.one.tell(True)
        await agent.until(lambda: agent.alive() == [])
        assert agent.clock.monotonic() - began < 40


async def drained(backend: AdminBackend, seconds: float = 300) -> list[str]:
    """The lines of a drain that came to its end."""
    steps = [step async for step in backend.drain.drain(seconds)]
    assert steps[-1].done
    return [step.message for step in steps]


async def test_a_drain_ends_all_pods_and_refuses_new_ones_until_it_is_undone(agent: AgentModel) -> None:
    async with agent.running() as backend:
        for name in ("one", "two"):
            await agent.apply(a_pod(name))
        last = "all pods have ended; new ones are refused"
        lines = await agent.done(drained(backend))
        assert lines == ["pod default/one ended", "pod default/two ended", last]
        assert agent.alive() == []
        assert (status(agent, "one").reason, (await ready(backend))[0]) == ("Terminated", "False")
        await backend.pods.apply_pod(a_pod("late"))
        await agent.until(lambda: agent.phase("late") == "Failed")
        assert status(agent, "late").reason == "NodeShutdown"
        assert await agent.done(drained(backend)) == [last]
        assert (await agent.done(backend.drain.undo())).done
        assert (await ready(backend))[0] == "True"
        await agent.apply(a_pod("next"))
        await agent.done(drained(backend))
    async with agent.running():
        await agent.until(lambda: agent.phase("one") == agent.phase("next") == "Running")


async def test_a_drain_has_a_limit_and_the_same_drain_again_joins_it(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("slow", termination_grace_period_seconds=60))
        for unit in agent.runtimes["one"].backend.units.values():
            unit.behaviour = dataclasses.replace(unit.behaviour, ignores_stop=True)
        with pytest.raises(TimedOut, match="after 5s not ended: pods default/slow"):
            await agent.done(drained(backend, 5))
        assert (await agent.done(drained(backend)))[0] == "pod default/slow ended"
        assert agent.runtimes["one"].counts["stop_unit"] == 1


async def test_an_undone_drain_ends_for_the_command_that_waits(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("slow", termination_grace_period_seconds=60))
        for unit in agent.runtimes["one"].backend.units.values():
            unit.behaviour = dataclasses.replace(unit.behaviour, ignores_stop=True)
        waiting = asyncio.create_task(drained(backend))
        await agent.until(lambda: agent.runtimes["one"].counts["stop_unit"] == 1)
        await backend.drain.undo()
        with pytest.raises(Conflict, match="another command ended the drain"):
            await agent.done(waiting)
        await agent.apply(a_pod("next"))


async def test_a_bus_that_is_away_is_tried_again(watched: AgentModel) -> None:
    agent = watched
    original = Lock.__init__

    def failing(self: Lock, blocking: object) -> None:
        original(self, blocking)
        self.failures = 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lock, "__init__", failing)
        async with agent.running():
            assert not Lock.one.is_held
            await agent.until(lambda: Lock.one.is_held)


async def test_ending_the_agent_ends_no_pod(watched: AgentModel) -> None:
    agent = watched
    async with agent.running():
        await agent.apply(a_pod("web"))
    assert len(agent.alive()) == 1
    async with agent.running():
        assert agent.phase("web") == "Running"


async def test_a_cordoned_node_takes_no_new_pods_but_static_ones_also_after_a_restart(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("old"))
        assert (await backend.drain.cordon_node(True)).message == "node cordoned"
        assert (await backend.node.get_node()).spec.unschedulable
    (agent.root / "manifests" / "static.yaml").write_text(STATIC)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("static-node") == agent.phase("old") == "Running")
        with pytest.raises(Conflict, match="the node is cordoned; use 'kubeletx uncordon' first"):
            await backend.pods.apply_pod(a_pod("new"))
        await backend.drain.cordon_node(False)
        await agent.apply(a_pod("new"))
        assert not (await backend.node.get_node()).spec.unschedulable
