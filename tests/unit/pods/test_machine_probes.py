"""Probes of a machine belong to one boot of its guest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import Endpoint, Host, UnitId, UnitState, names
from kubeletx.kube.types.core import Container, ExecAction, Pod, Probe
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.overrides import with_power
from kubeletx.testing import FakeRuntime
from kubeletx.testing.fake_runtime import ExecHandler
from tests.unit.pods.manager_model import Node, a_pod


def probe(**numbers: int) -> Probe:
    return Probe(exec=ExecAction(command=("is-up",)), **numbers)  # type: ignore[arg-type]


class AnsweringNode(Node):
    """A node whose machines answer commands with `handler`."""

    def __init__(self, root: Path, handler: ExecHandler) -> None:
        super().__init__(root, workload_type="vm")
        self.handler = handler

    def _make(self, endpoint: Endpoint, _settings: Any, _host: Host) -> FakeRuntime:
        old = self.runtimes.get(endpoint.name)
        backend = old.backend if old else None
        runtime = FakeRuntime(endpoint.name, clock=self.clock, backend=backend, exec_handler=self.handler)
        runtime.backend.add_image("busybox")
        self.runtimes[endpoint.name] = runtime
        return runtime


class Guest:
    """A machine whose commands succeed while it `is_up`."""

    def __init__(self, root: Path, **probes: Probe) -> None:
        self.node = AnsweringNode(root, self._answer)
        self.is_up = True
        pod = a_pod("vm")
        machine = Container(name="vm", image="busybox", **probes)  # type: ignore[arg-type]
        self.pod: Pod = replace(
            pod,
            metadata=replace(pod.metadata, annotations={names.WORKLOAD_TYPE: "vm"}),
            spec=replace(pod.spec, containers=(machine,)),
        )

    async def boot(self) -> PodWorker:
        worker = await self.node.start(self.pod)
        await self.node.until(lambda: self.is_ready)
        return worker

    async def _answer(self, unit_id: UnitId, command: Any, session: Any) -> int:
        return 0 if self.is_up else 1

    @property
    def runtime(self) -> Any:
        return self.node.runtimes["one"]

    @property
    def unit_id(self) -> UnitId:
        found: UnitId = self.runtime.backend.find_unit("vm")
        return found

    @property
    def state(self) -> UnitState:
        found: UnitState = self.runtime.backend.unit(self.unit_id).summary.state
        return found

    def reboots(self) -> None:
        """The guest restarts itself and needs a while until it is up."""
        self.is_up = False
        self.runtime.backend.unit(self.unit_id).restarts += 1
        self.runtime.backend.set_state(self.unit_id, UnitState.RUNNING)

    @property
    def is_ready(self) -> bool:
        return self._status("ready")

    @property
    def is_started(self) -> bool:
        return self._status("started")

    def _status(self, field: str) -> bool:
        status = self.node.services.board.statuses.get(self.pod.uid)
        return status is not None and bool(getattr(status.container_statuses[0], field))


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(
        tmp_path,
        startup_probe=probe(period_seconds=5, failure_threshold=60),
        liveness_probe=probe(period_seconds=3, failure_threshold=2),
        readiness_probe=probe(period_seconds=2),
    )


async def test_a_guest_that_reboots_is_not_killed_while_its_startup_probe_waits(guest: Guest) -> None:
    async with guest.node.running():
        await guest.boot()
        guest.reboots()
        await guest.node.until(lambda: not guest.is_started)
        await guest.node.clock.run_for(60)
        assert not guest.is_ready
        assert guest.runtime.counts["stop_unit"] == 0
        guest.is_up = True
        await guest.node.until(lambda: guest.is_ready)
        assert guest.runtime.counts["create_unit"] == 1


async def test_initial_delays_count_from_the_reboot(tmp_path: Path) -> None:
    guest = Guest(
        tmp_path,
        liveness_probe=probe(initial_delay_seconds=40, period_seconds=3, failure_threshold=2),
        readiness_probe=probe(period_seconds=2),
    )
    async with guest.node.running():
        await guest.boot()
        await guest.node.clock.run_for(60)
        guest.reboots()
        await guest.node.until(lambda: not guest.is_ready)
        await guest.node.clock.run_for(30)
        guest.is_up = True
        await guest.node.clock.run_for(30)
        assert guest.runtime.counts["stop_unit"] == 0


async def test_a_machine_that_was_switched_off_and_on_is_not_ready_before_its_probes_say_so(
    guest: Guest,
) -> None:
    async with guest.node.running():
        worker = await guest.boot()
        await guest.node.services.overrides.amend(
            worker, lambda o: with_power(o, "off", "running", "Running")
        )
        await guest.node.until(lambda: guest.state is UnitState.EXITED)
        guest.is_up = False
        seen: list[bool] = []
        guest.node.services.board.subscribe(lambda *_: seen.append(guest.is_ready or guest.is_started))
        await guest.node.services.overrides.amend(
            worker, lambda o: with_power(o, "running", "running", "Running")
        )
        await guest.node.until(lambda: guest.state is UnitState.RUNNING)
        await guest.node.until(lambda: seen)
        await guest.node.clock.run_for(30)
        assert not any(seen)
        guest.is_up = True
        await guest.node.until(lambda: guest.is_ready)


async def test_a_reboot_while_the_agent_is_away_starts_the_probes_over(guest: Guest) -> None:
    async with guest.node.running():
        await guest.boot()
    guest.is_up = False
    guest.runtime.backend.unit(guest.unit_id).restarts += 1
    async with guest.node.running() as manager:
        manager.update("file", guest.pod)
        await guest.node.clock.run_for(60)
        assert not guest.is_ready
        assert guest.runtime.counts["stop_unit"] == 0
        guest.is_up = True
        await guest.node.until(lambda: guest.is_ready)


async def test_a_restart_of_the_agent_keeps_the_word_of_the_probes(guest: Guest) -> None:
    async with guest.node.running():
        await guest.boot()
    async with guest.node.running() as manager:
        seen: list[bool] = []
        guest.node.services.board.subscribe(lambda *_: seen.append(guest.is_ready))
        manager.update("file", guest.pod)
        await guest.node.clock.run_for(60)
        assert seen
        assert all(seen)
