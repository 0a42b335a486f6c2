"""Admission checks of plugins in a whole agent: refusal, waiting, failing open, and pods that run already."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kubeletx.api import Allow, Refuse
from kubeletx.plugins.registrations import Hook, Registration
from tests.unit.agent.agent_model import AgentModel, a_pod

REFUSES = Refuse(reason="NotOurs", message="use an image\nof the team")


class Check:
    """Answers or raises what it is given; keeps the pods that it was asked about."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.pods: list[Mapping[str, Any]] = []

    async def review(self, pod: Any) -> Any:
        self.pods.append(pod)
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer


def register(agent: AgentModel, name: str, check: Any, **fields: Any) -> None:
    def factory(settings: Any, host: Any) -> Any:
        if isinstance(check, BaseException):
            raise check
        return check

    fields = {"plugin": "acme"} | fields
    agent.registrations.add(Registration(hook=Hook.ADMISSION_CHECK, name=name, factory=factory, **fields))


def waiting(agent: AgentModel) -> str:
    worker = agent.parts.manager.find("default", "web")
    return worker.facts.waiting.reason if worker is not None and worker.facts.waiting is not None else ""


async def test_a_pod_that_every_check_allows_runs_and_the_checks_see_it_whole(agent: AgentModel) -> None:
    check = Check(Allow())
    register(agent, "registry", check)
    async with agent.running():
        await agent.apply(a_pod())
        (pod,) = check.pods
        assert (pod["kind"], pod["metadata"]["name"], pod["metadata"]["namespace"]) == (
            "Pod",
            "web",
            "default",
        )
        assert pod["metadata"]["uid"]
        assert pod["spec"]["containers"][0]["image"] == "busybox"


async def test_a_refused_pod_fails_with_the_reason_of_the_check(agent: AgentModel) -> None:
    register(agent, "registry", Check(REFUSES))
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: agent.phase("web") == "Failed")
        (pod,) = await backend.pods.list_pods()
        assert pod.status.reason == "NotOurs"
        assert pod.status.message == "Pod was rejected: admission check registry: use an image of the team"
        assert agent.alive() == []
        assert "NotOurs" in [event.reason for event in await backend.node.list_events()]


async def test_a_check_changes_nothing_of_the_pod(agent: AgentModel) -> None:
    class Greedy:
        async def review(self, pod: Any) -> Any:
            pod["spec"]["containers"][0]["image"] = "another"
            return Allow()

    register(agent, "greedy", Greedy())
    async with agent.running():
        made = await agent.apply(a_pod())
        assert made.spec.containers[0].image == "busybox"


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("broken"),
        SystemExit(1),
        None,
        Refuse(reason="two words", message="m"),
        Refuse(reason=3, message="m"),  # type: ignore[arg-type]
        asyncio.Event().wait,
    ],
)
async def test_a_pod_waits_for_a_check_that_is_broken_and_runs_once_it_allows(
    agent: AgentModel, answer: Any
) -> None:
    check = Check(answer)
    register(agent, "registry", check)
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: len(check.pods) >= 2)
        assert waiting(agent) == "AdmissionCheckFailed"
        assert "admission-check/registry" in (await backend.about.plugins())[0].reason
        events = [
            event for event in await backend.node.list_events() if event.reason == "AdmissionCheckFailed"
        ]
        assert len(events) == 1
        check.answer = Allow()
        await agent.until(lambda: agent.phase("web") == "Running")


async def test_a_check_that_fails_open_stops_no_pod(agent: AgentModel) -> None:
    register(agent, "registry", Check(RuntimeError("broken")), fails_open=True)
    register(agent, "unmade", SystemExit("no"), fails_open=True)
    async with agent.running():
        await agent.apply(a_pod())


async def test_a_pod_waits_for_a_check_that_could_not_be_made(agent: AgentModel) -> None:
    register(agent, "unmade", SystemExit("no"))
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: waiting(agent) == "AdmissionCheckFailed")


async def test_a_pod_that_runs_already_is_not_reviewed_again(agent: AgentModel) -> None:
    check = Check(Allow())
    register(agent, "registry", check)
    async with agent.running():
        await agent.apply(a_pod())
    check.answer = REFUSES
    async with agent.running():
        await agent.until(lambda: agent.phase("web") == "Running")
        assert len(check.pods) == 1


async def test_a_pod_that_is_deleted_during_its_review_never_starts(agent: AgentModel) -> None:
    gate = asyncio.Event()

    async def waits() -> Allow:
        await gate.wait()
        return Allow()

    check = Check(waits)
    register(agent, "slow", check)
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod())
        await agent.until(lambda: check.pods)
        from kubeletx.server.views import DeleteOptions, PodTarget

        await agent.done(backend.pods.delete_pod(PodTarget(namespace="default", name="web"), DeleteOptions()))
        gate.set()
        await agent.until(lambda: agent.parts.manager.find("default", "web") is None)
        assert agent.alive() == []
