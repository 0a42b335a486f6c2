"""A node with 500 pods, 480 of them frozen: start, wake of 100 at once, restart of the agent, and work while idle."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from kubeletx.api import PodUid, UnitState, names
from kubeletx.pods.workloads.power import Power
from tests.unit.agent.agent_model import AgentModel, a_pod

PODS = 500
FROZEN = 480
WOKEN = 100
IDLE_SECONDS = 60
MOST_TURNS = 10
"""Plans of all pods together in an idle minute."""


def put(agent: AgentModel, index: int) -> None:
    """Deliver pod `index`, frozen by its annotation if it is one of the first `FROZEN`."""
    pod = a_pod(f"pod-{index}", runtime="one")
    notes = {names.STANDBY: "standby"} if index < FROZEN else {}
    metadata = replace(pod.metadata, uid=PodUid(f"uid-{index}"), annotations=notes)
    agent.parts.manager.update("api", replace(pod, metadata=metadata))


def states(agent: AgentModel) -> Counter[UnitState]:
    units = agent.runtimes["one"].backend.units.values()
    return Counter(unit.summary.state for unit in units)


def is_calm(agent: AgentModel) -> bool:
    """No input waits and no action is in flight, also none on a thread: the model's clock does not wait for threads."""
    workers = agent.parts.manager.workers.values()
    return not any(worker.is_unit_changing or worker.facts.in_flight for worker in workers)


def at_rest(agent: AgentModel, frozen: int) -> bool:
    expected = Counter({UnitState.PAUSED: frozen, UnitState.RUNNING: PODS - frozen})
    return states(agent) == expected and is_calm(agent)


async def turns(agent: AgentModel) -> int:
    return sum((await agent.durations("kubelet_pod_worker_duration_seconds")).values())


async def check_idle(agent: AgentModel) -> None:
    """In a minute without any input no pod is planned, and the runtime is asked only for its health and one list."""
    runtime = agent.runtimes["one"]
    await agent.clock.run_for(30)
    turns_before = await turns(agent)
    before = Counter(runtime.counts)
    await agent.clock.run_for(IDLE_SECONDS)
    calls = runtime.counts - before
    assert set(calls) <= {"health", "list_sandboxes", "list_units"}, calls
    assert calls.total() <= IDLE_SECONDS / 2, calls
    assert await turns(agent) - turns_before <= MOST_TURNS


async def test_500_pods_of_which_480_are_frozen(agent: AgentModel) -> None:
    agent.configure("node", max_pods=PODS)
    async with agent.running() as backend:
        node = await backend.node.get_node()
        assert node.status.capacity["pods"] == node.status.allocatable["pods"] == str(PODS)
        for index in range(PODS):
            put(agent, index)
        await agent.until(lambda: at_rest(agent, FROZEN), seconds=900)
        put(agent, PODS)
        await agent.until(lambda: agent.phase(f"pod-{PODS}") == "Failed")
        agent.parts.manager.remove("api", PodUid(f"uid-{PODS}"))
        runtime = agent.runtimes["one"]
        assert runtime.counts["freeze"] == FROZEN
        await check_idle(agent)
        for index in range(WOKEN):
            agent.parts.manager.ask_power(PodUid(f"uid-{index}"), Power.RUNNING, "sessions")
        await agent.until(lambda: at_rest(agent, FROZEN - WOKEN))
        assert runtime.counts["thaw"] == WOKEN
        assert runtime.counts["freeze"] == FROZEN
    async with agent.running():
        runtime = agent.runtimes["one"]
        for index in range(PODS):
            put(agent, index)
        agent.parts.manager.synced("api")
        await agent.until(lambda: at_rest(agent, FROZEN), seconds=900)
        assert runtime.counts["freeze"] == WOKEN, "requests in memory have ended with the agent"
        assert runtime.counts["create_unit"] == runtime.counts["thaw"] == runtime.counts["stop_unit"] == 0
        await check_idle(agent)
