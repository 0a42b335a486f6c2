"""While an overrides file cannot be read, the pod waits. A failed read or write of the file is tried again later."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import PodUid, Unavailable, UnitState
from kubeletx.kube.types.core import Pod, VirtualMachine
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.pods.workloads.overrides import with_power
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")
FAILURES = 5


class FailingDisk:
    """Fails the first `FAILURES` calls of `method`, which reads or writes overrides files; keeps the times of all."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.times: list[float] = []
        work = getattr(PodFiles, method)

        async def fail(*args: Any) -> Any:
            self.times.append(node.clock.monotonic())
            if len(self.times) <= FAILURES:
                raise Unavailable("overrides.json: Input/output error")
            return await work(*args)

        monkeypatch.setattr(PodFiles, method, fail)

    def is_spaced(self) -> bool:
        """Return True if the calls had the delays of back-off, which may be shorter by half."""
        waits = [later - earlier for earlier, later in pairwise(self.times)]
        return all(wait >= 0.05 * 2**number for number, wait in enumerate(waits))


def pod_of(kind: str, power: str = "Running") -> Pod:
    if kind == "container":
        return a_pod()
    machine = VirtualMachine(name="guest", image="busybox", power_spec=power)
    return a_pod(containers=0, virtual_machine=machine)


async def ask(node: Node, kind: str, power: str, state: UnitState) -> None:
    """Start a pod, store an operator's request, and wait until the unit has this state."""
    worker = await node.start(pod_of(kind))
    await node.services.overrides.amend(worker, lambda one: with_power(one, power, "running", "Running"))
    await node.until(lambda: unit_state(node) is state)


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
        await ask(node, kind, power, state)
    written = overrides_file(node).read_bytes()
    disk = FailingDisk(node, monkeypatch, "read_overrides")
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


async def test_an_overridden_request_is_dropped_after_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, workload_type="vm")
    async with node.running() as manager:
        await ask(node, "vm", "paused", UnitState.PAUSED)
        disk = FailingDisk(node, monkeypatch, "write_overrides")
        manager.update("file", pod_of("vm", "Suspended"))
        await node.until(lambda: b"paused" not in overrides_file(node).read_bytes())
        await node.clock.run_for(30)
    assert len(disk.times) == FAILURES + 1
    assert disk.is_spaced()
