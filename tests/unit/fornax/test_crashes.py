"""A crash of the agent before each of its database writes, while a pod of a core is created."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from tests.unit.fornax.pod_world import World, a_pod


@pytest.mark.parametrize("state", ["Running", "Standby"])
async def test_a_pod_that_a_core_has_seen_is_created_after_a_crash(tmp_path: Path, state: str) -> None:
    pod = a_pod(HIBERNATE_POD="hibernate") if state == "Standby" else a_pod()
    seen = []
    for writes in count():
        root = tmp_path / str(writes)
        root.mkdir()
        world = World(root)
        async with world.running():
            store = world.node.store
            store.writes_left = writes
            await world.create(pod)
            await world.until(lambda: store.is_dead or _listed(world) == state)  # noqa: B023 - ends before the next
        seen.append(bool(world.pods))
        async with world.running():
            wanted = state if seen[-1] else ""
            await world.until(lambda: _listed(world) == wanted)  # noqa: B023 - ends before the next
            assert bool(world.node.alive()) is seen[-1]
        if not store.is_dead:
            break
    assert seen[:1] == [False]  # nothing is reported before the pod is on the disk
    assert all(seen[1:])
    assert len(seen) > 3


def _listed(world: World) -> str:
    found = world.listed().get("apps/web")
    return pb.PodState.State.Name(found.state) if found is not None else ""
