"""While an overrides file cannot be read, the pod waits, and the file is read again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kubeletx.api import PodUid, Unavailable, UnitState
from kubeletx.kube.types.core import Pod, VirtualMachine
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.pods.workloads.overrides import with_power
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")
FAILURES = 5


class FailingDisk:
    """Fails the first `FAILURES` reads of an overrides file, and keeps the times of all reads."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[float] = []
        read = PodFiles.read_overrides

        async def fail(files: PodFiles, pod: Pod) -> bytes | None:
            self.times.append(node.clock.monotonic())
            if len(self.times) <= FAILURES:
                raise Unavailable("cannot read overrides.json: Input/output error")
            return await read(files, pod)

        monkeypatch.setattr(PodFiles, "read_overrides", fail)

    def is_spaced(self) -> bool:
        """Return True if the reads had the delays of back-off, which may be shorter by half."""
        waits = [later - earlier for earlier, later in pairwise(self.times)]
        return all(wait >= 0.05 * 2**number for number, wait in enumerate(waits))


def pod_of(kind: str) -> Pod:
    if kind == "container":
        return a_pod()
    return a_pod(containers=0, virtual_machine=VirtualMachine(name="guest", image="busybox"))


def unit_state(node: Node) -> UnitState:
    (unit,) = node.runtimes["one"].backend.units.values()
    return unit.summary.state


def overrides_file(node: Node) -> Path:
    return node.root / "pods" / UID / "overrides.json"


@pytest.mark.parametrize(
    ("kind", "power", "state"),
    [
        ("vm", "off", UnitState.EXITED),
        ("vm", "paused", UnitState.PAUSED),
        ("vm", "standby", UnitState.PAUSED),
        ("container", "standby", UnitState.PAUSED),
    ],
)
async def test_a_request_holds_while_its_file_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, power: str, state: UnitState
) -> None:
    node = Node(tmp_path, workload_type=kind)
    async with node.running():
        worker = await node.start(pod_of(kind))
        await node.services.overrides.amend(worker, lambda one: with_power(one, power, "running", "Running"))
        await node.until(lambda: unit_state(node) is state)
    written = overrides_file(node).read_bytes()
    disk = FailingDisk(node, monkeypatch)
    async with node.running() as manager:
        manager.update("file", pod_of(kind))
        manager.synced("file")
        await node.until(lambda: len(disk.times) > FAILURES)
        await node.clock.run_for(30)
    calls = node.runtimes["one"].counts
    assert unit_state(node) is state
    assert [calls[verb] for verb in ("create_unit", "start_unit", "resume", "thaw", "remove_unit")] == [0] * 5
    assert overrides_file(node).read_bytes() == written
    assert disk.is_spaced()
