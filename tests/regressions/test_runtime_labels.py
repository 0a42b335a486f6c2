"""A pod that is placed by the label of a runtime gets that runtime or waits, alone and in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api.names import RUNTIME_LABEL_PREFIX
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec
from kubeletx.pods.admission import AdmissionNode, NodeAdmission
from kubeletx.pods.model.facts import DesiredPod
from tests.unit.agent.agent_model import AgentModel, a_pod

TWO = f"{RUNTIME_LABEL_PREFIX}two"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentModel:
    return AgentModel(tmp_path)


def waiting(model: AgentModel, name: str) -> str | None:
    worker = model.parts.manager.find("default", name)
    status = worker.facts.previous_status if worker is not None else None
    return status.reason if status is not None else None


async def test_a_standalone_node_has_the_labels_of_its_runtimes(model: AgentModel) -> None:
    async with model.running():
        await model.until(lambda: all(h.state.ready for h in model.parts.registry.handles()))
        await model.apply(a_pod(runtime="two", node_selector={TWO: "ready"}))
        assert model.alive("two") == ["web"]


async def test_a_pod_of_a_runtime_that_comes_late_runs_there_at_once(model: AgentModel) -> None:
    async with model.running() as backend:
        await model.until(lambda: all(h.is_listed for h in model.parts.registry.handles()))
        model.runtimes["two"].backend.kill()
        await model.until(lambda: not model.parts.registry.get("two").state.reachable)
        await backend.pods.apply_pod(a_pod(runtime="two", node_selector={TWO: "ready"}))
        await model.until(lambda: waiting(model, "web") == "RuntimeNotReady")
        model.runtimes["two"].backend.revive()
        await model.until(lambda: model.phase("web") == "Running")


async def test_a_pod_selects_by_a_runtime_that_is_not_its_own_and_waits_for_it(model: AgentModel) -> None:
    async with model.running() as backend:
        await model.until(lambda: all(h.state.ready for h in model.parts.registry.handles()))
        model.runtimes["two"].network_ready = False
        await model.until(lambda: not model.parts.registry.get("two").state.network_ready)
        await backend.pods.apply_pod(a_pod(node_selector={TWO: "ready"}))
        await model.until(lambda: waiting(model, "web") == "RuntimeNotReady")
        model.runtimes["two"].network_ready = True
        await model.until(lambda: model.phase("web") == "Running")
        assert model.alive("one") == ["web"]


def _desired(selector: dict[str, str]) -> DesiredPod:
    pod = Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=PodSpec(node_selector=selector))
    return DesiredPod(uid=pod.uid, pod=pod, source="api", spec_hash="h")


def test_the_clusters_copy_of_a_runtime_label_may_be_older_than_the_runtime() -> None:
    live = {TWO: "notready"}
    admission = NodeAdmission(AdmissionNode(name="n"), runtime_labels=lambda: live)
    admission.relabel({TWO: "notready", f"{RUNTIME_LABEL_PREFIX}removed": "ready", "disk": "ssd"})
    assert admission.labels == {TWO: "notready", "disk": "ssd"}
    selects = _desired({TWO: "ready", "disk": "ssd"})
    assert admission.admit(selects, None) is not None
    awaited = admission.runtime_awaited(selects.pod)
    assert awaited is not None
    assert awaited.reason == "RuntimeNotReady"
    assert f"{TWO} is notready" in awaited.message
    live[TWO] = "ready"
    assert admission.admit(selects, None) is None


def test_a_cordoned_runtime_is_awaited_under_that_name() -> None:
    admission = NodeAdmission(AdmissionNode(name="n"), runtime_labels=lambda: {TWO: "cordoned"})
    awaited = admission.runtime_awaited(_desired({TWO: "ready"}).pod)
    assert awaited is not None
    assert awaited.reason == "RuntimeCordoned"


def test_a_pod_that_no_runtime_could_place_here_is_refused_for_good() -> None:
    admission = NodeAdmission(AdmissionNode(name="n"), runtime_labels=lambda: {TWO: "notready"})
    assert admission.runtime_awaited(_desired({TWO: "ready", "disk": "ssd"}).pod) is None
    assert admission.runtime_awaited(_desired({f"{RUNTIME_LABEL_PREFIX}three": "ready"}).pod) is None
