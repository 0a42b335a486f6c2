"""A pod whose runtime refuses a container waits, and the start is tried again (DECISIONS 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import InvalidPod, PodUid
from kubeletx.api.names import RUNTIME_UNSUPPORTED
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def refusal(reason: str | None = RUNTIME_UNSUPPORTED) -> InvalidPod:
    return InvalidPod(field="spec.nics[0]", problem="not here", fix="use another", reason=reason)


async def test_a_pod_waits_while_its_runtime_lacks_a_feature(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("create_unit", error=refusal(), times=3)
        manager.update("api", a_pod())
        await node.until(lambda: runtime.counts["create_unit"])
        await node.until(lambda: "Failed" in node.sink.reasons())
        status = node.services.board.statuses[UID]
        (waiting,) = (one.state.waiting for one in status.container_statuses)
        assert status.phase == "Pending"
        assert waiting is not None
        assert waiting.reason == "RuntimeUnsupported"
        assert waiting.message == "spec.nics[0]: not here; use another"
        await node.until(lambda: node.phase(UID) == "Running", 2000)


async def test_what_may_heal_is_tried_again(node: Node) -> None:
    async with node.running():
        node.runtimes["one"].script("create_unit", error=refusal(None), times=3)
        await node.start(a_pod(), "api")
