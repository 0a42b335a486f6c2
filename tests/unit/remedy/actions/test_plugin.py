"""Remedies of plugins: status is asked before a repeat, and what a plugin does wrong is never a success."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from kubeletx.api import RemedyRequest, RemedyResult, RemedyState, hookimpl
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.actions.plugin import PluginAction, PluginRemedyHost
from kubeletx.remedy.model import (
    FenceMethod,
    FenceOperation,
    FenceProof,
    FlowStep,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedyTask,
)
from kubeletx.remedy.plugins import load_remedies
from kubeletx.testing import FakeClock
from tests.unit.remedy.actions.remedy_cluster import NAMESPACE, RemedyCluster


class Device:
    """A remedy whose answers a test chooses. `acts`: operations that acted."""

    def __init__(self, *states: RemedyState, remedy: Any = RemedyState.DONE) -> None:
        self.states, self.remedy_answer = list(states), remedy
        self.acts: list[str] = []

    async def remedy(self, request: RemedyRequest) -> Any:
        self.acts.append(request.operation)
        assert request.parameters == {"rack": "7"}
        if isinstance(self.remedy_answer, Exception):
            raise self.remedy_answer
        if self.remedy_answer == "hang":
            await asyncio.Event().wait()
        return self._result(self.remedy_answer)

    async def status(self, request: RemedyRequest) -> Any:
        state = self.states.pop(0) if self.states else RemedyState.UNKNOWN
        return self._result(state)

    @staticmethod
    def _result(state: Any) -> Any:
        return RemedyResult(state=state) if isinstance(state, RemedyState) else state


async def run(
    device: Device, *, is_repeat: bool = False, seconds: float = 60.0, name: str = "rack"
) -> RemedyOutcome:
    """Run the remedy; the clock does not wait between two questions."""
    clock = FakeClock()
    action = PluginAction(
        None,  # type: ignore[arg-type] # only secrets need a client
        clock=clock,
        namespace=NAMESPACE,
        poll_seconds=0.0,
        load=lambda: {"rack": lambda settings, host: device},
    )
    method = FenceMethod(
        name="off",
        kind="plugin",
        definition={"name": name},
        parameters={"rack": "7"},
        seconds=seconds,
        proof=FenceProof.POWER,
    )
    task = RemedyTask(
        node=NodeView(metadata=ObjectMeta(name="one")),
        fence=NodeFence(node="one"),
        step=FlowStep.POWER,
        method=method,
        operation=FenceOperation(id="op"),
        is_repeat=is_repeat,
    )
    return await action.run(task)


async def test_a_remedy_that_is_done_gives_the_proof_of_its_method() -> None:
    device = Device()
    outcome = await run(device)
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.POWER,))
    assert device.acts == ["op"]


async def test_a_running_remedy_is_asked_until_it_ends() -> None:
    device = Device(RemedyState.RUNNING, RemedyState.DONE, remedy=RemedyState.RUNNING)
    assert (await run(device)).result is MethodResult.DONE
    assert device.acts == ["op"]


@pytest.mark.parametrize(
    ("status", "result", "acts"),
    [
        (RemedyState.DONE, MethodResult.DONE, 0),
        (RemedyState.FAILED, MethodResult.FAILED, 0),
        (RemedyState.UNKNOWN, MethodResult.UNKNOWN, 0),
        (RemedyState.NOT_STARTED, MethodResult.DONE, 1),
    ],
)
async def test_a_new_leader_asks_before_it_repeats(
    status: RemedyState, result: MethodResult, acts: int
) -> None:
    device = Device(status)
    assert (await run(device, is_repeat=True)).result is result
    assert len(device.acts) == acts


@pytest.mark.parametrize("answer", [ValueError("broken"), "nonsense", None, "hang"])
@pytest.mark.parametrize(
    ("later", "result"),
    [
        (RemedyState.UNKNOWN, MethodResult.UNKNOWN),
        (RemedyState.NOT_STARTED, MethodResult.FAILED),
        (RemedyState.DONE, MethodResult.DONE),
    ],
)
async def test_after_a_fault_only_the_status_counts(
    answer: Any, later: RemedyState, result: MethodResult
) -> None:
    device = Device(later, remedy=answer)
    outcome = await run(device, seconds=0.05 if answer == "hang" else 60.0)
    assert outcome.result is result
    assert device.acts == ["op"]


async def test_a_remedy_without_a_plugin_has_not_acted() -> None:
    outcome = await run(Device(), name="other")
    assert outcome.result is MethodResult.FAILED
    assert "registered: rack" in outcome.message


async def test_a_secret_is_read_from_the_controllers_namespace(cluster: RemedyCluster) -> None:
    cluster.admin.create("secrets", {"metadata": {"name": "rack"}, "data": {"key": "c2VjcmV0"}}, NAMESPACE)
    host = PluginRemedyHost("rack", cluster.client, cluster.clock, NAMESPACE)
    assert await host.secret("rack") == {"key": b"secret"}
    assert await host.blocking(lambda: "read") == "read"
    host.close()


def test_a_plugin_that_cannot_be_loaded_costs_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(name: str, register: Any) -> EntryPoint:
        made = ModuleType(name)
        if register is not None:
            made.kubeletx_register_remedies = hookimpl(register)  # type: ignore[attr-defined] # a plugin's module
        monkeypatch.setitem(__import__("sys").modules, name, made)
        return EntryPoint(name=name, value=name, group="kubeletx")

    def good(register: Any) -> None:
        register("rack", Device)

    def wrong(register: Any) -> None:
        register("wrong", "no factory")

    def ends(register: Any) -> None:
        raise SystemExit(1)

    points = [
        module("plugin_good", good),
        module("plugin_wrong", wrong),
        module("plugin_ends", ends),
        module("plugin_without", None),
        EntryPoint(name="missing", value="plugin_missing", group="kubeletx"),
    ]
    assert set(load_remedies(points)) == {"rack"}
