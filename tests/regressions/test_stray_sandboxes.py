"""A sandbox that no one asked for is stopped, and an event says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, SandboxId, SandboxSpec, SandboxState
from kubeletx.api.names import AGENT_ID, POD_SOURCE, POD_UID, RUNTIME_NAME
from kubeletx.pods.model import actions as act
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.pod_model import PodModel, make_pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one", "two")


def stray(uid: str, runtime: str, name: str = "stray") -> SandboxSpec:
    return SandboxSpec(
        uid=PodUid(uid),
        name=name,
        namespace="default",
        labels={AGENT_ID: "agent", RUNTIME_NAME: runtime, POD_UID: uid},
        annotations={POD_SOURCE: "file"},
    )


def killing(node: Node, name: str) -> list[str]:
    return [one.message for one in node.sink.recorded if one.reason == "Killing" and one.ref.name == name]


async def test_a_stray_sandbox_that_is_stopped_makes_an_event(node: Node) -> None:
    async with node.running() as manager:
        manager.synced("file")
        backend = node.runtimes["one"].backend
        backend.add_sandbox(stray("uid-stray", "one"))
        await node.registry.get("one").relist()
        await node.until(lambda: not backend.sandboxes and not manager.workers)
        assert killing(node, "stray") == ["Stopping pod on runtime one: source 'file' does not have it"]


async def test_a_pod_on_a_second_runtime_is_stopped_there_with_an_event(node: Node) -> None:
    async with node.running():
        await node.start(a_pod(runtime="one"))
        backend = node.runtimes["two"].backend
        backend.add_sandbox(stray("uid-web", "two", "web"))
        await node.registry.get("two").relist()
        await node.until(lambda: not backend.sandboxes)
        assert "Stopping pod on runtime two: it is bound to runtime one" in killing(node, "web")
        assert node.alive() == ["web/c0"]


def test_an_older_sandbox_beside_the_pods_own_is_stopped_with_an_event() -> None:
    model = PodModel(make_pod())
    model.settle()
    own = model.sandboxes[0]
    older = replace(own, id=SandboxId("stray"), created_at_ns=0, state=SandboxState.READY)
    model.sandboxes.append(older)
    model.journal.clear()
    model.settle()
    stops = [one for one in model.journal if isinstance(one, act.StopSandbox)]
    assert [(one.sandbox_id, one.message) for one in stops] == [
        ("stray", "Stopping sandbox stray: the pod has a newer one")
    ]
    assert model.alive() == ["web"]
