"""Containers of plugins/quark that other programs freeze, thaw, kill and move, and the strategy of one pod."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_quark.freezer import Freezer, FreezerState
from kubeletx_quark.plugin import make_runtime

from kubeletx.api import Conflict, SystemClock, UnitState, names
from kubeletx.cri import ContainerdTasks, CriClient, TaskState
from kubeletx.testing import FakeHost, endpoint
from kubeletx_testing.lab import PrivateContainerd
from kubeletx_testing.lab.cgroups import list_container_processes
from kubeletx_testing.waiting import until
from tests.integration.support.quark_units import BUSY, CHILD, Start, Unit, starting, task

CLOCK = SystemClock()


@pytest_asyncio.fixture
async def start(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[Start]:
    async with starting(containerd_a, tmp_path) as run:
        yield run


def freezer_of(unit: Unit) -> Freezer:
    """The container's freezer, as another program would use it."""
    directory = unit.directory("freezer")
    return Freezer(directory, 1 if (directory / "freezer.state").exists() else 2)


async def test_an_annotation_decides_also_on_a_new_runtime_object(
    start: Start, containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    unit = await start("strategy=freezer", BUSY, {names.STANDBY_STRATEGY: "pause"})
    later = make_runtime(
        endpoint(f"{containerd_a.endpoint}?strategy=freezer"), None, FakeHost(tmp_path, clock=CLOCK)
    )
    await later.open()
    for runtime in (unit.runtime, later):
        one = Unit(runtime, unit.id, unit.pid, unit.log)
        await one.standby.freeze(unit.id)
        assert (await task(containerd_a, unit.id)).state is TaskState.PAUSED
        await one.standby.thaw(unit.id)
        assert (await task(containerd_a, unit.id)).state is TaskState.RUNNING
    await later.close()


async def test_a_freeze_and_a_thaw_by_another_program_are_seen_and_reverted(start: Start) -> None:
    unit = await start("", BUSY)
    freezer = freezer_of(unit)
    assert await unit.state() is UnitState.RUNNING
    await freezer.freeze(CLOCK)
    assert await unit.state() is UnitState.PAUSED
    await unit.standby.thaw(unit.id)
    assert freezer.state() is FreezerState.THAWED
    assert await unit.state() is UnitState.RUNNING
    await unit.standby.hibernate(unit.id)
    await freezer.thaw(CLOCK)
    assert await unit.state() is UnitState.RUNNING
    await unit.standby.freeze(unit.id)
    assert freezer.state() is FreezerState.FROZEN
    assert await unit.state() is UnitState.PAUSED


async def test_a_pause_by_another_program_ends_by_containerd_so_that_it_knows(
    start: Start, containerd_a: PrivateContainerd
) -> None:
    unit = await start("strategy=freezer", BUSY)
    assert await unit.state() is UnitState.RUNNING
    client = CriClient(containerd_a.endpoint)
    await ContainerdTasks(client).pause(unit.id)
    await client.close()
    assert await unit.state() is UnitState.PAUSED
    await unit.standby.thaw(unit.id)
    assert (await task(containerd_a, unit.id)).state is TaskState.RUNNING
    assert await unit.state() is UnitState.RUNNING


@pytest.mark.parametrize("strategy", ["freezer", "pause"])
async def test_a_frozen_container_whose_process_is_killed_ends(start: Start, strategy: str) -> None:
    unit = await start(f"strategy={strategy}", BUSY)
    await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.PAUSED
    os.kill(unit.pid, signal.SIGKILL)
    if (unit.directory("freezer") / "freezer.state").exists():
        listed = [one.state for one in await unit.runtime.list_units({}) if one.id == unit.id]
        assert listed == [UnitState.EXITED], "with cgroup v1 the list itself thaws it"
    await until_state(unit, UnitState.EXITED)
    assert (await unit.runtime.unit_status(unit.id)).exit_code == 128 + signal.SIGKILL


async def test_a_killed_child_ends_and_the_container_runs(start: Start) -> None:
    unit = await start("strategy=freezer", CHILD)
    await until(lambda: len(list_container_processes({unit.id})) == 2)
    (child,) = [one for one in list_container_processes({unit.id}) if one != unit.pid]
    await unit.standby.freeze(unit.id)
    os.kill(child, signal.SIGKILL)
    if (unit.directory("freezer") / "freezer.state").exists():
        listed = [one.state for one in await unit.runtime.list_units({}) if one.id == unit.id]
        assert UnitState.PAUSED not in listed, "with cgroup v1 the list itself thaws it"
    await until(lambda: child not in list_container_processes({unit.id}))


async def test_a_process_in_a_cgroup_below_is_frozen_too(start: Start) -> None:
    unit = await start("strategy=freezer", f"({BUSY}) & {BUSY}")
    await until(lambda: len(list_container_processes({unit.id})) == 2)
    below = unit.directory("freezer") / "below"
    below.mkdir()
    (child,) = [one for one in list_container_processes({unit.id}) if one != unit.pid]
    (below / "cgroup.procs").write_text(str(child))
    await unit.standby.freeze(unit.id)
    await unit.until_busy(False)
    await unit.standby.thaw(unit.id)
    os.kill(child, signal.SIGKILL)
    await until(lambda: not (below / "cgroup.procs").read_text())
    below.rmdir()


async def test_a_container_that_was_moved_to_a_foreign_cgroup_is_not_frozen(start: Start) -> None:
    unit = await start("strategy=freezer", BUSY)
    own = unit.directory("freezer")
    foreign = own.parent / f"foreign-{os.getpid()}"
    foreign.mkdir()
    (foreign / "cgroup.procs").write_text(str(unit.pid))
    try:
        with pytest.raises(Conflict, match=r"is in cgroup .*foreign.*, which is not the container's"):
            await unit.standby.freeze(unit.id)
        assert await unit.state() is UnitState.RUNNING
        await unit.until_busy()
    finally:
        (own / "cgroup.procs").write_text(str(unit.pid))
        foreign.rmdir()


async def until_state(unit: Unit, wanted: UnitState) -> None:
    """Wait until CRI shows the state; containerd needs a moment for it."""
    for _ in range(500):
        if (await unit.runtime.unit_status(unit.id)).summary.state is wanted:
            return
        await CLOCK.sleep(0.02)
    raise AssertionError(f"the container is not {wanted.value}")
