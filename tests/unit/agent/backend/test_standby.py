"""``kubeletx pod standby`` and ``activate``, on a whole agent with fake runtimes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidPod,
    KubeletxError,
    NotFound,
    SupportsStandby,
    TimedOut,
    Traits,
    Unavailable,
    UnitState,
    Unsupported,
)
from kubeletx.kube.types.core import Container, ExecAction, Pod, PodCondition, Probe, ResourceRequirements
from kubeletx.pods.executor import PodExecutor
from kubeletx.pods.model.facts import PodFacts
from kubeletx.server.views import DeleteOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

WEB = PodTarget(namespace="default", name="web")


@pytest.fixture
def agent(tmp_path: Path) -> AgentModel:
    return AgentModel(tmp_path, names=("one", "kvm"))


def states(agent: AgentModel) -> set[UnitState]:
    return {unit.state for unit in agent.runtimes["one"].backend.find_units({}) if unit.state.is_alive}


@pytest.mark.parametrize(
    ("verb", "power", "state"),
    [("standby", "standby", UnitState.PAUSED), ("hibernate", "hibernated", UnitState.SUSPENDED)],
)
async def test_a_pod_rests_and_is_activated(
    agent: AgentModel, verb: str, power: str, state: UnitState
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        view = await agent.done(backend.standby.set_standby(WEB, verb, 60))
        assert states(agent) == {state}
        assert (view.power, set(view.containers.values())) == (power, {state.value})
        view = await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert states(agent) == {UnitState.RUNNING}
        assert (view.power, set(view.containers.values())) == ("running", {"running"})


async def test_a_request_outlives_the_agent(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
    async with agent.running() as backend:
        await agent.clock.run_for(20)
        assert states(agent) == {UnitState.PAUSED}
        await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert states(agent) == {UnitState.RUNNING}
    assert agent.runtimes["one"].counts["create_unit"] == 0


async def test_a_freeze_that_fails_says_why(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        agent.runtimes["one"].script("freeze", error=Conflict("thread 7 (dd) is in uninterruptible sleep"))
        with pytest.raises(Conflict, match=r"cannot standby pod default/web: thread 7 \(dd\)"):
            await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        assert states(agent) == {UnitState.RUNNING}


async def test_a_pod_that_is_not_ready_stays_awake_and_the_request_in_force(agent: AgentModel) -> None:
    probe = Probe(exec=ExecAction(command=("true",)))
    async with agent.running() as backend:
        agent.runtimes["one"].script("exec_sync", error=Conflict("no"))
        await agent.apply(
            a_pod("web", containers=(Container(name="c", image="busybox", readiness_probe=probe),))
        )
        with pytest.raises(TimedOut, match="not standby after 5s: c is running; the request stays in force"):
            await agent.done(backend.standby.set_standby(WEB, "standby", 5))
        agent.runtimes["one"].scripts.clear()
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})


async def test_what_cannot_stand_by_is_refused(agent: AgentModel) -> None:
    async with agent.running() as backend:
        with pytest.raises(NotFound, match="verbs: standby, hibernate, activate"):
            await backend.standby.set_standby(WEB, "freeze", 60)
        with pytest.raises(NotFound):
            await backend.standby.set_standby(WEB, "standby", 60)


async def refusal(agent: AgentModel, name: str, verb: str = "standby", seconds: float = 5) -> str:
    """The error of a command, as ``Class: message``."""
    target = PodTarget(namespace="default", name=name)
    with pytest.raises(KubeletxError) as error:
        await agent.done(agent.parts.backend.standby.set_standby(target, verb, seconds))
    return f"{type(error.value).__name__}: {error.value}"


@pytest.mark.parametrize("verb", ["standby", "hibernate", "activate"])
async def test_a_pod_that_has_ended_or_is_ending_is_refused(agent: AgentModel, verb: str) -> None:
    async with agent.running() as backend:
        fake = agent.runtimes["one"]
        await agent.apply(a_pod("job", restart_policy="Never"))
        (unit,) = fake.backend.units
        fake.backend.exit_unit(unit, 0)
        await agent.until(lambda: agent.phase("job") == "Succeeded")
        said = "Conflict: pod default/job has ended (phase Succeeded); create it again first"
        assert await refusal(agent, "job", verb) == said
        await agent.apply(a_pod("web"))
        stuck = fake.script("stop_unit", hang=True)
        ending = asyncio.create_task(backend.pods.delete_pod(WEB, DeleteOptions()))
        await agent.until(lambda: fake.counts["stop_unit"] == 1)
        assert await refusal(agent, "web", verb) == (
            "Conflict: pod default/web is being deleted, so that its standby no longer changes"
        )
        stuck.release()
        await agent.done(ending)
        await agent.until(lambda: agent.parts.manager.find("default", "web") is None)
        assert await refusal(agent, "web", verb) == 'NotFound: pods "web" not found in namespace "default"'


async def test_a_job_that_completes_while_it_should_be_frozen_ends_the_command(agent: AgentModel) -> None:
    probe = Probe(exec=ExecAction(command=("false",)))
    container = Container(name="c", image="busybox", readiness_probe=probe)
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=(container,), restart_policy="Never"))
        command = asyncio.create_task(backend.standby.set_standby(WEB, "standby", 600))
        await agent.clock.run_for(5)
        fake = agent.runtimes["one"]
        fake.backend.exit_unit(fake.backend.find_unit("c"), 0)
        with pytest.raises(Conflict, match=r"pod default/web has ended \(phase Succeeded\)"):
            await agent.done(command)


async def test_a_pod_without_a_runtime_is_waited_for_and_then_refused_with_the_reason(
    agent: AgentModel,
) -> None:
    pod = a_pod("web")
    async with agent.running() as backend:
        await backend.pods.apply_pod(replace(pod, spec=replace(pod.spec, runtime_service_name="three")))
        assert await refusal(agent, "web") == (
            "TimedOut: pod default/web is not bound to a runtime after 5s: spec.runtimeServiceName: no runtime 'three' on "
            "this node; runtimes: kvm, one; nothing was requested"
        )
        await backend.pods.apply_pod(a_pod("new"))
        target = PodTarget(namespace="default", name="new")
        view = await agent.done(backend.standby.set_standby(target, "standby", 60))
        assert view.containers == {"main": "paused"}


async def test_a_runtime_that_does_not_answer_has_not_lost_the_pod(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        agent.runtimes["one"].backend.kill()
        said = await refusal(agent, "web")
        assert (
            said == "Conflict: cannot standby pod default/web: runtime one does not answer; it is tried again"
        )
        await agent.clock.run_for(30)
        assert "Unavailable: runtime one does not answer" in await refusal(agent, "web", "activate")
        agent.runtimes["one"].backend.revive()
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})
        assert agent.phase("web") == "Running"
        await agent.done(backend.standby.set_standby(WEB, "activate", 60))
    assert agent.runtimes["one"].counts["create_unit"] == 1


async def test_a_pod_whose_image_cannot_be_pulled_is_named_with_that_reason(agent: AgentModel) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].script("pull_image", error=NotFound("no such image"))
        await backend.pods.apply_pod(a_pod("web", containers=(Container(name="c", image="nowhere"),)))
        await agent.until(lambda: agent.runtimes["one"].counts["pull_image"] == 1)
        said = await refusal(agent, "web")
        assert re.match(
            r"TimedOut: pod default/web is not standby after 5s: c waits \((ErrImagePull|ImagePull\w+)\); ",
            said,
        )


async def test_a_freeze_that_fails_after_the_activation_does_not_fail_it(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        fake = agent.runtimes["one"]
        fake.script("freeze", delay_seconds=3, error=Conflict("thread 7 is busy"))
        freezing = asyncio.create_task(backend.standby.set_standby(WEB, "standby", 60))
        await agent.until(lambda: fake.counts["freeze"] == 1)
        view = await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert (view.power, view.containers) == ("running", {"main": "running"})
        freezing.cancel()
        await asyncio.gather(freezing, return_exceptions=True)


@pytest.mark.parametrize(("verb", "later"), [("standby", "activate"), ("hibernate", "standby")])
async def test_a_command_that_a_later_one_replaced_says_so_at_once(
    agent: AgentModel, verb: str, later: str
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        agent.runtimes["one"].script("freeze", hang=True)
        agent.runtimes["one"].script("hibernate", hang=True)
        first = asyncio.create_task(backend.standby.set_standby(WEB, verb, 3600))
        await agent.until(lambda: sum(agent.runtimes["one"].counts[one] for one in ("freeze", "hibernate")))
        second = asyncio.create_task(backend.standby.set_standby(WEB, later, 3600))
        with pytest.raises(Conflict, match=rf"cannot {verb} pod default/web: .* replaced by a later command"):
            await agent.done(first)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_a_thaw_counts_although_the_runtime_stopped_and_no_freeze_is_reported_that_was_not_made(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        stopped, runtime = Unavailable("containerd is stopped"), agent.runtimes["one"]
        for method in ("unit_status", "list_units", "list_sandboxes", "freeze"):
            runtime.script(method, error=stopped)
        view = await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert set(view.containers.values()) == {"running"}
        with pytest.raises(Conflict, match=r"cannot standby pod default/web: .*containerd is stopped"):
            await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        assert states(agent) == {UnitState.RUNNING}


async def test_a_state_in_doubt_is_not_reported(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        stopped, runtime = Unavailable("containerd is stopped"), agent.runtimes["one"]
        runtime.script("thaw", error=stopped, after_effect=True, times=1)
        for method in ("list_units", "list_sandboxes"):
            runtime.script(method, error=stopped)
        with pytest.raises(Conflict, match=r"cannot activate pod default/web: .*containerd is stopped"):
            await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert states(agent) == {UnitState.RUNNING}
        with pytest.raises((Conflict, TimedOut)):
            await agent.done(backend.standby.set_standby(WEB, "standby", 5))
        runtime.scripts.clear()
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})


async def test_a_runtime_without_standby_is_named(agent: AgentModel) -> None:
    agent.without = (SupportsStandby,)
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        with pytest.raises(Unsupported, match="runtime one of pod default/web cannot freeze containers"):
            await backend.standby.set_standby(WEB, "standby", 60)


def noted(pod: Pod, word: str, **others: str) -> Pod:
    """The pod with annotation kubeletx.io/standby."""
    notes = {"kubeletx.io/standby": word, **others}
    return replace(pod, metadata=replace(pod.metadata, annotations=notes))


@pytest.mark.parametrize(
    ("word", "state"), [("standby", UnitState.PAUSED), ("hibernated", UnitState.SUSPENDED)]
)
async def test_a_pod_with_the_annotation_starts_becomes_ready_and_rests(
    agent: AgentModel, word: str, state: UnitState
) -> None:
    probe = Probe(exec=ExecAction(command=("true",)))
    container = Container(name="c", image="busybox", readiness_probe=probe)
    async with agent.running():
        agent.runtimes["one"].script("exec_sync", error=Conflict("not yet"))
        await agent.apply(noted(a_pod("web", containers=(container,)), word))
        await agent.clock.run_for(30)
        assert states(agent) == {UnitState.RUNNING}
        agent.runtimes["one"].scripts.clear()
        await agent.until(lambda: states(agent) == {state})


async def test_an_activation_wins_over_the_annotation_until_standby_is_requested_again(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(noted(a_pod("web"), "standby"))
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})
        view = await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert (view.power, states(agent)) == ("running", {UnitState.RUNNING})
    async with agent.running() as backend:
        await agent.clock.run_for(30)
        assert states(agent) == {UnitState.RUNNING}
        await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        assert states(agent) == {UnitState.SUSPENDED}
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        assert states(agent) == {UnitState.PAUSED}
    async with agent.running():
        await agent.clock.run_for(30)
        assert states(agent) == {UnitState.PAUSED}
    assert agent.runtimes["one"].counts["create_unit"] == 0


async def test_a_changed_annotation_changes_the_state(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(a_pod("web"))
        await agent.apply(noted(a_pod("web"), "hibernated"))
        await agent.until(lambda: states(agent) == {UnitState.SUSPENDED})
        await agent.apply(a_pod("web"))
        await agent.until(lambda: states(agent) == {UnitState.RUNNING})


def with_strategy(name: str) -> Pod:
    pod = a_pod("web")
    notes = {**pod.metadata.annotations, "kubeletx.io/standby-strategy": name}
    return replace(pod, metadata=replace(pod.metadata, annotations=notes))


async def test_the_strategy_reaches_the_runtime_as_it_is(agent: AgentModel) -> None:
    agent.traits = Traits(details=("process", "machine"), standby_strategies=("pause", "by signal"))
    async with agent.running():
        await agent.apply(with_strategy("by signal"))
        (sandbox,) = agent.runtimes["one"].backend.sandboxes.values()
        assert sandbox.spec is not None
        assert sandbox.spec.annotations["kubeletx.io/standby-strategy"] == "by signal"


def has_reason(agent: AgentModel) -> bool:
    """True once the published status of the pod has a reason."""
    worker = agent.parts.manager.find("default", "web")
    status = worker.facts.previous_status if worker is not None else None
    return status is not None and bool(status.reason)


@pytest.mark.parametrize(
    ("known", "problem"),
    [
        (("pause", "signal"), "'ice' is not known to the pod's runtime; use one of: pause, signal"),
        ((), "is set, but the pod's runtime has no strategies to choose from"),
    ],
)
async def test_a_strategy_that_the_runtime_does_not_have_is_refused(
    agent: AgentModel, known: tuple[str, ...], problem: str
) -> None:
    agent.traits = Traits(details=("process", "machine"), standby_strategies=known)
    async with agent.running() as backend:
        await backend.pods.apply_pod(with_strategy("ice"))
        await agent.until(lambda: has_reason(agent))
        (pod,) = await backend.pods.list_pods()
        assert (pod.status.phase, pod.status.reason) == ("Pending", "RuntimeUnsupported")
        field = "metadata.annotations[kubeletx.io/standby-strategy]"
        assert f"runtime one: {field}: {problem}" in (pod.status.message or "")
        assert agent.runtimes["one"].counts["create_sandbox"] == 0


async def test_an_unknown_state_is_refused(agent: AgentModel) -> None:
    async with agent.running():
        with pytest.raises(
            InvalidPod,
            match=r"annotations\[kubeletx.io/standby\].*asleep.* is not known.*use .*standby.*hibernated",
        ):
            await agent.apply(noted(a_pod("web"), "asleep"))


async def test_a_runtime_that_cannot_is_named_with_the_feature(agent: AgentModel) -> None:
    agent.without = (SupportsStandby,)
    async with agent.running() as backend:
        await backend.pods.apply_pod(noted(a_pod("web"), "standby"))
        await agent.until(lambda: has_reason(agent))
        (pod,) = await backend.pods.list_pods()
        assert (pod.status.phase, pod.status.reason) == ("Pending", "RuntimeUnsupported")
        assert "runtime one: the pod's runtime cannot do what the pod needs: standby" in (
            pod.status.message or ""
        )


def condition(agent: AgentModel) -> PodCondition | None:
    worker = agent.parts.manager.find("default", "web")
    status = worker.facts.previous_status if worker is not None else None
    assert status is not None
    return next((one for one in status.conditions if one.type == "kubeletx.io/Standby"), None)


async def test_the_condition_says_since_when_a_pod_rests_and_what_memory_it_gave_back(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        assert condition(agent) is None
        fake = agent.runtimes["one"]
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        frozen = condition(agent)
        assert frozen is not None
        assert (frozen.status, frozen.reason) == ("True", "Standby")
        await agent.clock.run_for(100)
        assert condition(agent) == frozen, "the time of the freeze is kept"
        (unit,) = fake.backend.units.values()
        mebibytes = unit.behaviour.memory_bytes / (1 << 20)
        await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        hibernated = condition(agent)
        assert hibernated is not None
        assert (hibernated.reason, hibernated.message) == (
            "Hibernated",
            f"hibernated in 0.000s; memory: {mebibytes:.1f} MiB before, 0.0 MiB after",
        )
        assert hibernated.last_transition_time == frozen.last_transition_time
        await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        awake = condition(agent)
        assert awake is not None
        assert (awake.status, awake.reason, awake.message) == ("False", "NotFrozen", "thawed in 0.000s")
        events = [one for one in await backend.node.list_events() if one.involved_object.name == "web"]
        said = {event.reason: event.message or "" for event in events}
        assert said["Standby"] == "Froze container main in 0.000s"
        assert said["Hibernated"].startswith("Hibernated container main in ")
        assert said["Activated"].startswith("Thawed container main in ")
        freed = await agent.metric("kubeletx_standby_freed_bytes_total")
        assert freed == {"": unit.behaviour.memory_bytes}
        durations = await agent.durations("kubeletx_standby_duration_seconds")
        assert durations == {"freeze": 1, "hibernate": 1, "thaw": 1}


async def test_the_duration_of_a_change_is_that_of_the_whole_pod(agent: AgentModel) -> None:
    containers = tuple(Container(name=name, image="busybox") for name in ("a", "b"))
    sidecars = (Container(name="s", image="busybox", restart_policy="Always"),)
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=containers, init_containers=sidecars))
        fake = agent.runtimes["one"]
        fake.latency = {"freeze": 0.25, "thaw": 0.125, "hibernate": 0.5}
        view = await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        frozen = condition(agent)
        assert frozen is not None
        assert frozen.message == "frozen in 0.500s", "two containers at once, then the sidecar"
        assert (view.took_seconds, view.since) == (0.5, frozen.last_transition_time)
        assert (view.memory_before_bytes, view.memory_after_bytes) == (None, None)
        view = await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        before = sum(unit.behaviour.memory_bytes for unit in fake.backend.units.values())
        assert (view.took_seconds, view.memory_before_bytes, view.memory_after_bytes) == (1.0, before, 0)
        view = await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        awake = condition(agent)
        assert awake is not None
        assert awake.message == "thawed in 0.250s", "first the sidecar, then two containers at once"
        assert (view.took_seconds, view.since) == (0.25, awake.last_transition_time)
        found = await agent.metric("kubeletx_standby_pod_duration_seconds")
        measured = {labels: (sum(one.counts), one.sum_seconds) for labels, one in found.items()}
        assert measured == {"freeze": (1, 0.5), "hibernate": (1, 1.0), "thaw": (1, 0.25)}


async def test_the_condition_outlives_the_agent_with_its_message(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        before = condition(agent)
        assert before is not None
        assert "hibernated in 0.000s; memory: " in (before.message or "")
    async with agent.running():
        await agent.clock.run_for(20)
        assert condition(agent) == before


async def test_a_pod_that_is_half_frozen_and_cannot_be_thawed_says_both(agent: AgentModel) -> None:
    containers = tuple(Container(name=name, image="busybox") for name in ("a", "b"))
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=containers))
        fake = agent.runtimes["one"]
        unit_b = fake.backend.find_unit("b")
        fake.script("freeze", error=Conflict("thread 7 is busy"), key=unit_b)
        fake.script("thaw", error=Conflict("the freezer is stuck"))
        with pytest.raises(Conflict, match=r"cannot standby pod default/web: thread 7 is busy"):
            await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        await agent.until(lambda: (found := condition(agent)) and found.reason == "ThawFailed")
        found = condition(agent)
        assert found is not None
        assert (found.status, found.message) == (
            "False",
            "container a cannot be thawed: the freezer is stuck; before that, the freeze failed: "
            "container b: thread 7 is busy",
        )
        assert states(agent) == {UnitState.PAUSED, UnitState.RUNNING}
        fake.scripts.clear()
        await agent.until(lambda: states(agent) == {UnitState.PAUSED})
        await agent.until(lambda: (found := condition(agent)) and found.status == "True")


async def test_the_condition_says_why_a_pod_does_not_rest(agent: AgentModel) -> None:
    async with agent.running():
        agent.runtimes["one"].script("freeze", error=Conflict("thread 7 is busy"))
        await agent.apply(noted(a_pod("web"), "standby"))
        await agent.until(lambda: (found := condition(agent)) and found.reason == "FreezeFailed")
        found = condition(agent)
        assert found is not None
        assert found.message == "container main: thread 7 is busy"
        agent.runtimes["one"].scripts.clear()
        await agent.until(lambda: (found := condition(agent)) and found.status == "True")
        assert await agent.metric("kubeletx_standby_pods") == {"standby": 1, "hibernated": 0}
        assert await agent.metric("kubeletx_pod_standby") == {"default,web,standby": 1}


REQUESTING = Container(
    name="c", image="busybox", resources=ResourceRequirements(requests={"cpu": "100m", "memory": "10Mi"})
)


async def test_a_pod_counts_in_full_before_its_first_container_is_thawed(agent: AgentModel) -> None:
    agent.configure("pods", standby_requests_percent=10)
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=(REQUESTING,)))
        assert agent.counted() == (100, 10)
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
        assert agent.counted() == (10, 10)
        await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        assert agent.counted() == (10, 1)
        stuck = agent.runtimes["one"].script("thaw", hang=True)
        waking = asyncio.create_task(backend.standby.set_standby(WEB, "activate", 60))
        await agent.until(lambda: agent.runtimes["one"].counts["thaw"] == 1)
        assert agent.counted() == (100, 10)
        stuck.release()
        await agent.done(waking)
        assert agent.counted() == (100, 10)


async def test_a_frozen_pod_whose_runtime_does_not_answer_after_a_restart_is_shown_and_counted_as_before(
    agent: AgentModel,
) -> None:
    agent.configure("pods", standby_requests_percent=10)
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=(REQUESTING,)))
        await agent.done(backend.standby.set_standby(WEB, "hibernate", 60))
        before = condition(agent)
        assert agent.counted() == (10, 1)
    agent.runtimes["one"].backend.kill()
    async with agent.running() as backend:
        await agent.clock.run_for(30)
        assert condition(agent) == before
        assert agent.counted() == (10, 1)
        agent.runtimes["one"].backend.revive()
        await agent.clock.run_for(30)
        assert condition(agent) == before
        assert agent.counted() == (10, 1)
        await agent.done(backend.standby.set_standby(WEB, "activate", 60))
        assert agent.counted() == (100, 10)


async def test_every_count_of_a_frozen_pod_after_a_restart_is_its_share(agent: AgentModel) -> None:
    """A pod that is new at the start of the agent must not be rejected because frozen pods count in full."""
    agent.configure("pods", standby_requests_percent=10)
    container = Container(name="c", image="busybox", resources=ResourceRequirements(requests={"cpu": "100m"}))
    async with agent.running() as backend:
        await agent.apply(a_pod("web", containers=(container,)))
        await agent.done(backend.standby.set_standby(WEB, "standby", 60))
    seen: list[int] = []
    observe = PodExecutor.observe

    def noted(executor: PodExecutor, *arguments: Any) -> PodFacts:
        seen.append(executor.admission.occupancy.amounts["cpu"])
        return observe(executor, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PodExecutor, "observe", noted)
        async with agent.running():
            await agent.clock.run_for(30)
            assert states(agent) == {UnitState.PAUSED}
    assert set(seen) == {10}
