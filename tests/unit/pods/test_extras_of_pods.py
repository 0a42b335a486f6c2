"""Extras of other rooms in the life of a pod: a provider that fails concerns only the units that it serves."""

from __future__ import annotations

from pathlib import Path

from kubeletx.api import PodUid, Unavailable
from kubeletx.kube.types.core import Container, Pod, VirtualMachine
from kubeletx.pods.specs.extras import UnitExtras
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")


class Sessions:
    """A provider that works once `ready`."""

    def __init__(self) -> None:
        self.ready = False
        self.asked: list[str] = []

    async def __call__(self, pod: Pod, container: Container | VirtualMachine) -> UnitExtras:
        self.asked.append(f"{pod.name}/{container.name}")
        if not self.ready and pod.name == "web":
            raise Unavailable("no certificate yet")
        return UnitExtras(variables={"SESSION": "1"})


async def test_a_unit_waits_for_a_provider_that_fails_and_starts_once_it_works(tmp_path: Path) -> None:
    node, sessions = Node(tmp_path), Sessions()
    node.extras["sessions"] = sessions

    def waits() -> bool:
        status = node.services.board.statuses.get(UID)
        waiting = status.container_statuses[0].state.waiting if status and status.container_statuses else None
        return waiting is not None and waiting.reason == "CreateContainerConfigError"

    async with node.running() as manager:
        manager.update("file", a_pod())
        await node.until(waits)
        state = node.services.board.statuses[UID].container_statuses[0].state.waiting
        assert state is not None
        assert state.message == "extras of provider 'sessions' for container 'c0': no certificate yet"
        await node.start(a_pod("other"))
        assert node.alive() == ["other/c0"]
        asked = len(sessions.asked)
        sessions.ready = True
        await node.until(lambda: node.phase(UID) == "Running")
        assert len(sessions.asked) == asked + 1
        backend = node.runtimes["one"].backend
        specs = [unit.spec for unit in backend.units.values() if unit.spec is not None]
        assert [[one.value for one in spec.environment] for spec in specs] == [["1"], ["1"]]
