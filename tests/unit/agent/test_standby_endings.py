"""Frozen and hibernated pods end as running ones do: thaw, hook, grace period, and no leftovers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.kube.types.core import (
    Container,
    ExecAction,
    Lifecycle,
    LifecycleHandler,
    Pod,
    ResourceRequirements,
)
from kubeletx.node.thresholds import Observation
from kubeletx.pods.model.priority import CRITICAL_PRIORITY
from kubeletx.server.backend import AdminBackend
from kubeletx.server.views import DeleteOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod
from tests.unit.agent.logind_model import Lock

MI = 1 << 20
WEB = PodTarget(namespace="default", name="web")
GRACE_SECONDS = 9
SOFT_SECONDS = 4
SHUTDOWN_SECONDS = 6
DEADLINE_SECONDS = 15
HOOK = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("true",))))

End = Callable[[AgentModel, AdminBackend], Awaitable[None]]


def victim() -> Pod:
    """A pod whose containers do not end by the stop signal, with a preStop hook and a sidecar."""
    main = Container(name="main", image="busybox", lifecycle=HOOK)
    side = Container(name="side", image="busybox", restart_policy="Always", lifecycle=HOOK)
    main = replace(main, resources=ResourceRequirements(requests={"cpu": f"{(os.cpu_count() or 1) * 600}m"}))
    return a_pod(
        "web", containers=(main,), init_containers=(side,), termination_grace_period_seconds=GRACE_SECONDS
    )


@pytest.fixture
def agent(agent: AgentModel) -> AgentModel:
    """An agent that gives pods 8 s when the host goes down, on a node with one CPU."""
    agent.host = replace(agent.host, logind=Lock)
    agent.configure("shutdown", grace_seconds=8.0, critical_grace_seconds=2.0)
    agent.configure(
        "eviction",
        hard={},
        soft={"memory.available": "100Mi"},
        soft_grace_periods={"memory.available": "5s"},
        max_pod_grace_seconds=SOFT_SECONDS,
    )
    return agent


@pytest.fixture
def pressure(agent: AgentModel) -> Callable[[], None]:
    """Report memory pressure from the call on."""
    left = [900 * MI]

    def measure(_root: object, _mounts: object, mono: float) -> tuple[tuple[()], tuple[Observation]]:
        return (), (
            Observation(signal="memory.available", place="", available=left[0], capacity=1000 * MI, at=mono),
        )

    agent.host = replace(agent.host, measure=measure)
    return lambda: left.__setitem__(0, 50 * MI)


async def delete(_agent: AgentModel, backend: AdminBackend) -> None:
    await backend.pods.delete_pod(WEB, DeleteOptions())


async def delete_by_force(_agent: AgentModel, backend: AdminBackend) -> None:
    await backend.pods.delete_pod(WEB, DeleteOptions(grace_seconds=0, force=True))


async def go_down(agent: AgentModel, _backend: AdminBackend) -> None:
    await agent.until(lambda: Lock.one.is_held)
    Lock.one.tell(True)


async def preempt(agent: AgentModel, _backend: AdminBackend) -> None:
    pod = a_pod("critical", containers=victim().spec.containers, priority=CRITICAL_PRIORITY)
    pod = replace(pod, metadata=replace(pod.metadata, uid=PodUid("critical")))
    agent.parts.manager.update("api", pod)
    await agent.until(lambda: agent.phase("critical") == "Running")


async def wait_for_deadline(_agent: AgentModel, _backend: AdminBackend) -> None:
    """The pod's own deadline ends it."""


ENDINGS: tuple[tuple[End, int, str], ...] = (
    (delete, GRACE_SECONDS, ""),
    (delete_by_force, 0, ""),
    (go_down, SHUTDOWN_SECONDS, "Terminated"),
    (preempt, GRACE_SECONDS, "Preempting"),
    (wait_for_deadline, GRACE_SECONDS, "DeadlineExceeded"),
)


async def rest(agent: AgentModel, backend: AdminBackend, verb: str, pod: Pod) -> None:
    """Apply the pod, let it rest, and make its processes ignore the stop signal."""
    await agent.apply(pod)
    await agent.done(backend.standby.set_standby(WEB, verb, 60))
    for unit in agent.runtimes["one"].backend.units.values():
        unit.behaviour = dataclasses.replace(unit.behaviour, ignores_stop=True, memory_bytes=200 * MI)
    agent.runtimes["one"].journal.clear()


def check_order(agent: AgentModel, hooks: int) -> None:
    """Each container was thawed before its hook, if it has time for one, and before its stop."""
    journal = [
        one for one in agent.runtimes["one"].journal if one.method in ("thaw", "exec_sync", "stop_unit")
    ]
    stopped = [one.key for one in journal if one.method == "stop_unit"]
    assert len(set(stopped)) == 2, journal
    for unit_id in set(stopped):
        own = [one.method for one in journal if one.key == unit_id]
        assert own[0] == "thaw", own
        assert own.index("stop_unit") > own.index("exec_sync") if "exec_sync" in own else not hooks, own
    assert sum(one.method == "exec_sync" for one in journal) == hooks
    assert not [one for one in agent.runtimes["one"].journal if one.method in ("freeze", "hibernate")]


@pytest.mark.parametrize("verb", ["standby", "hibernate"])
@pytest.mark.parametrize(
    ("end", "grace_seconds", "reason"), ENDINGS, ids=lambda one: getattr(one, "__name__", "")
)
async def test_a_pod_at_rest_is_thawed_and_ends_within_its_grace_period(
    agent: AgentModel, verb: str, end: End, grace_seconds: int, reason: str
) -> None:
    pod = victim()
    if end is wait_for_deadline:
        pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=DEADLINE_SECONDS))
    async with agent.running() as backend:
        await rest(agent, backend, verb, pod)
        runtime = agent.runtimes["one"]
        if end is not preempt:
            await end(agent, backend)
            await agent.until(lambda: runtime.calls("thaw"))
        else:
            await end(agent, backend)
        thawed_at = runtime.calls("thaw")[0].at
        if reason:
            await agent.until(lambda: agent.phase("web") == "Failed")
            worker = agent.parts.manager.find("default", "web")
            assert worker is not None
            assert worker.facts.previous_status is not None
            assert worker.facts.previous_status.reason == reason
        else:
            await agent.until(lambda: agent.parts.manager.find("default", "web") is None)
            assert not runtime.backend.sandboxes
            assert not runtime.backend.units
        check_order(agent, hooks=2 if grace_seconds else 0)
        stops = runtime.calls("stop_unit")
        assert stops[-1].at - thawed_at <= grace_seconds + 1
        ended = agent.clock.monotonic() - thawed_at
        assert ended >= grace_seconds, "the container had its whole grace period"
        assert "web" not in agent.alive()


@pytest.mark.parametrize("verb", ["standby", "hibernate"])
async def test_a_pod_at_rest_that_is_evicted_is_thawed_and_keeps_the_grace_period_of_the_eviction(
    agent: AgentModel, pressure: Callable[[], None], verb: str
) -> None:
    async with agent.running() as backend:
        await rest(agent, backend, verb, victim())
        pressure()
        await agent.until(lambda: agent.runtimes["one"].calls("thaw"))
        began = agent.clock.monotonic()
        await agent.until(lambda: agent.phase("web") == "Failed")
        assert agent.clock.monotonic() - began >= SOFT_SECONDS - 1
        check_order(agent, hooks=2)
        await agent.until(lambda: not agent.runtimes["one"].backend.units)
        assert not agent.runtimes["one"].backend.sandboxes
