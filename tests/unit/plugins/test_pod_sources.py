"""Pod sources of plugins in a whole agent: answers, ownership, restarts, and one broken source beside others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeletx.api import PodAnswer, PodSourceSink
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.server.views import DeleteOptions, PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

Script = Callable[[PodSourceSink], Awaitable[None]]


def manifest(name: str = "web", image: str = "busybox", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


class Source:
    """Runs a script with its sink; keeps the sink of the last run."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.sink: PodSourceSink
        self.runs = 0

    async def run(self, sink: PodSourceSink) -> None:
        self.sink = sink
        self.runs += 1
        if self.script is not None:
            await self.script(sink)
            return
        sink.synced()
        await asyncio.Event().wait()


def having(*pods: dict[str, Any]) -> Source:
    """A source that has these pods."""

    async def script(sink: PodSourceSink) -> None:
        for pod in pods:
            sink.set(pod)
        sink.synced()
        await asyncio.Event().wait()

    return Source(script)


def register(agent: AgentModel, name: str, source: Any, **fields: Any) -> None:
    def factory(settings: Any, host: Any) -> Any:
        if isinstance(source, BaseException):
            raise source
        return source

    fields = {"plugin": "acme"} | fields
    agent.registrations.add(Registration(hook=Hook.POD_SOURCE, name=name, factory=factory, **fields))


def uid(agent: AgentModel) -> str:
    worker = agent.parts.manager.find("default", "web-node")
    return worker.uid if worker is not None else ""


async def plugin(agent: AgentModel, name: str = "acme") -> Any:
    return next(one for one in await agent.parts.backend.about.plugins() if one.name == name)


async def test_a_pod_of_a_source_runs_and_ends_when_the_source_removes_it(agent: AgentModel) -> None:
    source = having(manifest())
    register(agent, "core", source)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web-node") == "Running")
        (pod,) = await backend.pods.list_pods()
        assert pod.metadata.annotations["kubernetes.io/config.source"] == "core"
        assert source.sink.remove("default", "web")
        assert not source.sink.remove("default", "web")
        await agent.until(lambda: agent.parts.manager.find("default", "web-node") is None)


async def test_each_manifest_is_answered(agent: AgentModel) -> None:
    source = Source()
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: source.runs)
        accepted = source.sink.set(manifest())
        assert accepted.answer is PodAnswer.ACCEPTED
        assert accepted.uid
        assert source.sink.set(manifest()) == accepted
        refused = source.sink.set(manifest("other", image=""))
        assert (refused.answer, refused.field) == (PodAnswer.REFUSED, "spec.containers[0].image")
        assert "pod-source/core" in refused.message
        await agent.until(lambda: agent.phase("web-node") == "Running")


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"kind": "Deployment", "apiVersion": "apps/v1"},
        {"kind": "PodList", "apiVersion": "v1", "items": []},
        manifest(name="Not A Name"),
        {**manifest(), "spec": {"containers": [{"name": "main", "image": object()}]}},
        {**manifest(), "spec": {"containers": [{"name": "main", "image": "\ud800"}]}},
        "text",
        None,
    ],
)
async def test_what_is_not_a_pod_is_refused_and_disturbs_nothing(agent: AgentModel, pod: Any) -> None:
    source = Source()
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: source.runs)
        outcome = source.sink.set(pod)
        assert outcome.answer is PodAnswer.REFUSED
        assert outcome.message
        assert source.sink.set(manifest()).answer is PodAnswer.ACCEPTED
        await agent.until(lambda: agent.phase("web-node") == "Running")
        assert source.runs == 1


async def test_a_pod_whose_name_another_source_has_waits_and_is_reported(agent: AgentModel) -> None:
    source = Source()
    register(agent, "core", source)
    async with agent.running() as backend:
        made = await agent.apply(a_pod("web-node"))
        outcome = source.sink.set(manifest())
        assert (outcome.answer, outcome.waits_for) == (PodAnswer.WAITS, "applied")
        assert "default/web-node" in outcome.message
        target = PodTarget(namespace="default", name="web-node", uid=made.uid)
        await agent.done(backend.pods.delete_pod(target, DeleteOptions()))
        await agent.until(lambda: uid(agent) == outcome.uid and agent.phase("web-node") == "Running")


async def test_two_sources_with_one_name_are_reported_and_neither_removes_the_other_s(
    agent: AgentModel,
) -> None:
    first, second = Source(), Source()
    register(agent, "first", first)
    register(agent, "second", second)
    async with agent.running():
        await agent.until(lambda: first.runs and second.runs)
        assert first.sink.set(manifest()).answer is PodAnswer.ACCEPTED
        assert second.sink.set(manifest()).waits_for == "first"
        assert second.sink.remove("default", "web")
        await agent.until(lambda: agent.phase("web-node") == "Running")
        worker = agent.parts.manager.find("default", "web-node")
        assert worker is not None
        assert worker.desired.source == "first"


async def test_a_changed_manifest_is_another_pod_and_a_bad_one_keeps_the_old(agent: AgentModel) -> None:
    source = Source()
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: source.runs)
        first = source.sink.set(manifest())
        await agent.until(lambda: agent.phase("web-node") == "Running")
        assert source.sink.set(manifest(image="")).answer is PodAnswer.REFUSED
        worker = agent.parts.manager.find("default", "web-node")
        assert worker is not None
        assert worker.desired.problem
        second = source.sink.set(manifest(labels={"a": "b"}))
        assert (second.answer, second.uid == first.uid) == (PodAnswer.ACCEPTED, False)
        await agent.until(lambda: agent.phase("web-node") == "Running" and uid(agent) == second.uid)


async def test_pods_outlive_a_restart_and_go_when_the_source_no_longer_has_them(agent: AgentModel) -> None:
    source = having(manifest("stays"), manifest("goes"))
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: agent.phase("stays-node") == agent.phase("goes-node") == "Running")
    source.script = having(manifest("stays")).script
    async with agent.running():
        await agent.until(lambda: agent.parts.manager.find("default", "goes-node") is None)
        assert agent.phase("stays-node") == "Running"


async def test_pods_of_a_source_that_cannot_be_made_or_never_says_all_run_on(agent: AgentModel) -> None:
    silent = having(manifest("one"))
    register(agent, "silent", silent)
    async with agent.running():
        await agent.until(lambda: agent.phase("one-node") == "Running")

    async def says_nothing(sink: PodSourceSink) -> None:
        await asyncio.Event().wait()

    silent.script = says_nothing
    async with agent.running():
        await agent.clock.run_for(90.0)
        assert agent.phase("one-node") == "Running"
        assert "did not set all its pods within 60 s" in (await plugin(agent)).reason


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1), None])
async def test_a_source_that_ends_is_started_again_and_others_go_on(
    agent: AgentModel, error: BaseException | None
) -> None:
    async def breaks(sink: PodSourceSink) -> None:
        sink.set(manifest("kept"))
        sink.synced()
        if error is not None:
            raise error

    broken, good = Source(breaks), having(manifest("good"))
    register(agent, "broken", broken)
    register(agent, "good", good, plugin="other")
    register(agent, "unmade", SystemExit("no"), plugin="third")
    async with agent.running() as backend:
        await agent.until(lambda: broken.runs >= 3)
        assert agent.phase("kept-node") == agent.phase("good-node") == "Running"
        assert good.runs == 1
        assert ((await plugin(agent)).state, (await plugin(agent, "other")).state) == ("degraded", "ready")
        assert (await plugin(agent, "third")).state == "degraded"
        assert not (await backend.about.health()).ok
        broken.script = having(manifest("kept")).script
        runs = broken.runs
        await agent.until(lambda: broken.runs > runs)
        await agent.clock.settle()
        assert (await plugin(agent)).state == "ready"


async def test_a_run_that_comes_back_with_less_ends_what_it_no_longer_has(agent: AgentModel) -> None:
    async def once(sink: PodSourceSink) -> None:
        sink.set(manifest("one"))
        sink.set(manifest("two"))
        sink.synced()
        await gate.wait()
        raise RuntimeError("connection lost")

    gate, source = asyncio.Event(), Source(once)
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: agent.phase("one-node") == agent.phase("two-node") == "Running")
        source.script = having(manifest("one")).script
        gate.set()
        await agent.until(lambda: agent.parts.manager.find("default", "two-node") is None)
        assert agent.phase("one-node") == "Running"


async def test_the_sink_is_for_the_event_loop_s_thread(agent: AgentModel) -> None:
    source = Source()
    register(agent, "core", source)
    async with agent.running():
        await agent.until(lambda: source.runs)
        with pytest.raises(RuntimeError, match="from the event loop only"):
            await asyncio.to_thread(source.sink.set, manifest())
