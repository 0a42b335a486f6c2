"""Freezing, hibernating and stopping real containers by each strategy of plugins/quark: what the processes do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_quark.plugin import make_runtime

from kubeletx.api import (
    Conflict,
    NotFound,
    SystemClock,
    UnitId,
    UnitState,
)
from kubeletx.cri import ContainerdTasks, CriClient, TaskState
from kubeletx.testing import FakeHost, endpoint
from kubeletx_testing.lab import PrivateContainerd
from kubeletx_testing.waiting import until
from tests.integration.support.quark_units import BUSY, CHILD, Start, Unit, starting, task
from tests.integration.support.swap_devices import NoSwap, zram

STRATEGIES = ("freezer", "pause", "signal")
HONOURS = (
    "trap 'off=1; while [ $off = 1 ]; do sleep 1000 & wait $!; done' USR1; trap 'off=0' USR2; "
    f"echo trapped; {BUSY}"
)


@pytest_asyncio.fixture
async def start(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[Start]:
    async with starting(containerd_a, tmp_path) as run:
        yield run


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_frozen_container_uses_no_cpu_time(start: Start, strategy: str) -> None:
    unit = await start(f"strategy={strategy}", BUSY)
    await unit.until_busy()
    await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.PAUSED
    await unit.until_busy(False)
    await unit.standby.thaw(unit.id)
    assert await unit.state() is UnitState.RUNNING
    await unit.until_busy()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_new_runtime_object_finds_it_frozen_and_thaws_it(
    start: Start, containerd_a: PrivateContainerd, tmp_path: Path, strategy: str
) -> None:
    unit = await start(f"strategy={strategy}", BUSY)
    await unit.standby.hibernate(unit.id)
    host = FakeHost(tmp_path, clock=SystemClock())
    later = make_runtime(endpoint(f"{containerd_a.endpoint}?strategy={strategy}"), None, host)
    await later.open()
    second = Unit(later, unit.id, unit.pid, unit.log)
    assert await second.state() is UnitState.SUSPENDED
    await second.standby.thaw(unit.id)
    assert await second.state() is UnitState.RUNNING
    await unit.until_busy()
    if strategy != "signal":  # a signal of another program cannot be seen
        assert await unit.state() is UnitState.RUNNING
    await later.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_does_not_run_or_exist_is_not_frozen(start: Start, strategy: str) -> None:
    unit = await start(f"strategy={strategy}", BUSY)
    with pytest.raises(NotFound):
        await unit.standby.freeze(UnitId("f" * 64))
    await unit.runtime.stop_unit(unit.id, 0)
    for change in (unit.standby.freeze, unit.standby.hibernate):
        with pytest.raises((Conflict, NotFound)):
            await change(unit.id)
    assert await unit.state() is UnitState.EXITED


@pytest.mark.parametrize("stop", ["cri", "kill"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_frozen_container_is_killed_and_leaves_no_process(
    start: Start, strategy: str, stop: str
) -> None:
    unit = await start(f"strategy={strategy}&stop={stop}", CHILD)
    try:
        await unit.standby.freeze(unit.id)
    except Conflict:
        assert strategy == "signal", "with runc, SIGSTOP stops the first process only"
    await unit.runtime.stop_unit(unit.id, 0)
    assert await unit.state() is UnitState.EXITED
    await until(lambda: not Path(f"/proc/{unit.pid}").exists())


async def test_the_pause_strategy_follows_a_resume_by_another_program(
    start: Start, containerd_a: PrivateContainerd
) -> None:
    unit = await start("strategy=pause", BUSY)
    await unit.standby.freeze(unit.id)
    assert (await task(containerd_a, unit.id)).state is TaskState.PAUSED
    client = CriClient(containerd_a.endpoint)
    await ContainerdTasks(client).resume(unit.id)
    await client.close()
    assert await unit.state() is UnitState.RUNNING


async def test_a_program_that_honours_its_own_signals_is_frozen_by_them(start: Start) -> None:
    unit = await start("strategy=signal&freeze-signal=10&thaw-signal=12", HONOURS)
    await until(lambda: unit.log.exists() and "trapped" in unit.log.read_text())
    await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.PAUSED
    await unit.until_busy(False)
    await unit.standby.thaw(unit.id)
    await unit.until_busy()


@pytest.mark.parametrize(
    ("parameters", "script"),
    [("strategy=signal", CHILD), ("strategy=signal&freeze-signal=10&thaw-signal=12", BUSY)],
    ids=["only the first process stops", "the signal is ignored"],
)
async def test_a_program_that_does_not_honour_the_signal_runs_on(
    start: Start, parameters: str, script: str
) -> None:
    unit = await start(parameters, script)
    if script == CHILD:
        await until(lambda: unit.log.exists() and "started" in unit.log.read_text())
    await unit.until_busy()
    with pytest.raises(Conflict, match="does not honour signal"):
        await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.RUNNING
    await unit.until_busy()
    stat = Path(f"/proc/{unit.pid}/stat").read_text()
    assert stat.rpartition(")")[2].split()[0] != "T"


@pytest.fixture
def swap() -> Iterator[None]:
    """Swap in memory; skipped where the kernel has no zram, or swap may not be switched on."""
    with ExitStack() as stack:
        try:
            stack.enter_context(zram())
        except NoSwap as why:
            pytest.skip(str(why))
        yield


async def test_a_hibernated_container_gives_its_memory_to_swap_and_gets_it_back(
    swap: None, start: Start
) -> None:
    # The trap comes first: a signal right after the word would have no effect on the first process of a container.
    fill = "x=$(head -c 24000000 /dev/zero | tr '\\0' a); trap 'echo ${#x}' USR1; echo filled; "
    unit = await start("strategy=freezer", fill + "while :; do sleep 0.05; done")
    await until(lambda: unit.log.exists() and "filled" in unit.log.read_text())
    directory = unit.directory("memory")
    usage = next(
        one for name in ("memory.usage_in_bytes", "memory.current") if (one := directory / name).exists()
    )
    before = int(usage.read_text())
    await unit.standby.hibernate(unit.id)
    assert await unit.state() is UnitState.SUSPENDED
    assert before - int(usage.read_text()) > 20_000_000
    await unit.standby.thaw(unit.id)
    os.kill(unit.pid, 10)
    await until(lambda: "24000000" in unit.log.read_text())
