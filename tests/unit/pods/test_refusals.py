"""What a runtime will never take is rejected; what may heal, or ran already, goes on trying (DECISIONS 5, A6)."""

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


async def test_a_pod_that_its_runtime_will_never_take_is_failed(node: Node) -> None:
    async with node.running() as manager:
        node.runtimes["one"].script("create_unit", error=refusal(), times=1)
        manager.update("api", a_pod())
        await node.until(lambda: node.phase(UID) == "Failed")
        status = node.services.board.statuses[UID]
        assert status.reason == "RuntimeUnsupported"
        assert status.message == "Pod was rejected: spec.nics[0]: not here; use another"
        assert status.container_statuses == ()
        assert node.sink.reasons().count("RuntimeUnsupported") == 1
        await node.until(lambda: not node.alive() and manager.workers[UID].plan.why == "ended")
        assert node.runtimes["one"].counts["create_unit"] == 1
        manager.remove("api", UID)
        await node.until(lambda: not manager.workers)
        assert not node.runtimes["one"].backend.sandboxes


async def test_what_may_heal_is_tried_again(node: Node) -> None:
    async with node.running():
        node.runtimes["one"].script("create_unit", error=refusal(None), times=3)
        await node.start(a_pod(), "api")


async def test_a_pod_that_ran_is_not_rejected_for_what_its_runtime_lacks_since(node: Node) -> None:
    async with node.running():
        worker = await node.start(a_pod(), "api")
        backend = node.runtimes["one"].backend
        node.runtimes["one"].script("create_unit", error=refusal(), times=3)
        for unit in list(backend.units):
            backend.exit_unit(unit, 1)
        await node.until(lambda: node.runtimes["one"].counts["create_unit"] >= 5, 2000)
        await node.until(lambda: node.phase(UID) == "Running")
        assert worker.facts.rejection is None


async def test_a_rejected_pod_shows_the_same_after_a_restart_of_the_agent(node: Node) -> None:
    async with node.running() as manager:
        node.runtimes["one"].script("create_unit", error=refusal())
        manager.update("api", a_pod())
        await node.until(lambda: node.phase(UID) == "Failed")
        await node.until(lambda: manager.workers[UID].plan.why == "ended")
        before = node.services.board.statuses[UID]
    async with node.running() as manager:
        manager.update("api", a_pod())
        await node.until(lambda: UID in manager.workers and manager.workers[UID].plan is not None)
        await node.clock.run_for(20)
        after = node.services.board.statuses[UID]
        assert (after.phase, after.reason, after.message) == (before.phase, before.reason, before.message)
        assert after.container_statuses == before.container_statuses == ()
        assert node.runtimes["one"].counts["create_unit"] == 0
