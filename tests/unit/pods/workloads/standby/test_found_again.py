"""Frozen pods that a restarted agent finds: their source no longer has them, or the database is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, UnitState
from kubeletx.kube.types.core import Container, Pod
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import HOOK, ending, is_in

UID = PodUid("uid-web")
POWERS = (("standby", UnitState.PAUSED), ("hibernated", UnitState.SUSPENDED))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def hooked() -> Pod:
    pod = a_pod()
    return replace(
        pod, spec=replace(pod.spec, containers=(Container(name="c", image="busybox", lifecycle=HOOK),))
    )


async def freeze(node: Node, power: str, state: UnitState) -> None:
    """Start the pod, and write a request for it."""
    worker = await node.start(hooked())
    await node.services.overrides.amend(worker, lambda one: replace(one, power=power))
    await node.until(partial(is_in, node, state))


@pytest.mark.parametrize(("power", "state"), POWERS)
async def test_a_frozen_pod_whose_source_no_longer_has_it_is_thawed_and_ends(
    node: Node, power: str, state: UnitState
) -> None:
    async with node.running():
        await freeze(node, power, state)
    async with node.running() as manager:
        await node.clock.run_for(5)
        assert is_in(node, state)
        manager.synced("file")
        await node.until(lambda: not manager.workers)
    assert ending(node) == ["thaw", "exec_sync", "stop_unit"]
    assert not node.runtimes["one"].backend.sandboxes


@pytest.mark.parametrize(("power", "state"), POWERS)
async def test_a_frozen_pod_stays_frozen_without_the_database_and_is_thawed_before_it_ends(
    node: Node, power: str, state: UnitState
) -> None:
    async with node.running():
        await freeze(node, power, state)
    for path in node.root.glob("db*"):
        path.unlink()
    async with node.running(keeps_orphans=True) as manager:
        manager.synced("file")
        await node.clock.run_for(30)
        assert is_in(node, state), "no request has been made yet"
        manager.update("file", hooked())
        await node.clock.run_for(30)
        assert is_in(node, state)
        assert node.runtimes["one"].counts["create_unit"] == 0
        manager.remove("file", UID)
        await node.until(lambda: not manager.workers)
    assert ending(node) == ["thaw", "exec_sync", "stop_unit"]


async def test_a_frozen_pod_without_a_request_is_thawed_by_a_restarted_agent(node: Node) -> None:
    async with node.running():
        await freeze(node, *POWERS[0])
    for path in node.root.glob("pods/*/overrides*"):
        path.unlink()
    async with node.running() as manager:
        manager.update("file", hooked())
        manager.synced("file")
        await node.until(partial(is_in, node, UnitState.RUNNING))
    assert node.runtimes["one"].counts["create_unit"] == 0
