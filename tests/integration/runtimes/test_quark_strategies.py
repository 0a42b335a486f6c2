"""Freezing, hibernating and stopping real containers by each strategy of plugins/quark: what the processes do."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_quark.cgroups import container_cgroup, find_hierarchy
from kubeletx_quark.plugin import make_runtime
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    ImageSpec,
    NotFound,
    Process,
    Runtime,
    SandboxId,
    SupportsImages,
    SupportsStandby,
    UnitId,
    UnitState,
)
from kubeletx.cri import ContainerdTask, ContainerdTasks, CriClient, TaskState
from kubeletx.runtimes.host.clock import SystemClock
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.lab import PrivateContainerd, image_ref
from kubeletx_testing.waiting import until

STRATEGIES = ("freezer", "pause", "signal")
BUSY = "while :; do :; done"
CHILD = f"({BUSY}) & wait"
HONOURS = (
    "trap 'off=1; while [ $off = 1 ]; do sleep 1000 & wait $!; done' USR1; trap 'off=0' USR2; "
    f"echo trapped; {BUSY}"
)
Start = Callable[..., Awaitable["Unit"]]


class Unit:
    """A running container on a runtime, and its pid on this machine."""

    def __init__(self, runtime: Runtime, unit_id: UnitId, pid: int, log: Path) -> None:
        self.runtime, self.id, self.pid, self.log = runtime, unit_id, pid, log
        found = runtime.capability(SupportsStandby)
        assert found is not None
        self.standby = found

    async def state(self) -> UnitState:
        (listed,) = [one for one in await self.runtime.list_units({}) if one.id == self.id]
        status = (await self.runtime.unit_status(self.id)).summary.state
        assert listed.state is status
        return status

    def directory(self, controller: str) -> Path:
        return container_cgroup(find_hierarchy(controller), self.pid, self.id)

    def cpu_ns(self) -> int:
        """CPU time of the container."""
        file = self.directory("cpuacct") / "cpuacct.usage"
        if file.exists():
            return int(file.read_text())
        text = (self.directory("cpuacct") / "cpu.stat").read_text()
        return int(dict(line.split() for line in text.splitlines())["usage_usec"]) * 1000

    async def is_busy(self) -> bool:
        """True if the container uses CPU time within a moment; False once it has used none for a moment."""
        before = self.cpu_ns()
        await asyncio.sleep(0.05)
        return self.cpu_ns() > before


@pytest_asyncio.fixture
async def start(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a container that runs a shell script, on a new runtime with these parameters in its URL."""
    made: list[tuple[Runtime, SandboxId]] = []

    async def run(parameters: str, script: str) -> Unit:
        host = FakeHost(tmp_path, clock=SystemClock())
        runtime = make_runtime(endpoint(f"{containerd_a.endpoint}?{parameters}"), None, host)
        await runtime.open()
        images = runtime.capability(SupportsImages)
        assert images is not None
        image = ImageSpec(requested=image_ref("busybox"))
        image = replace(image, ref=await images.pull_image(image, None, None))
        sandbox = sandbox_spec(f"quark-{os.getpid()}-{len(made)}", log_directory=str(tmp_path))
        sandbox_id = await runtime.create_sandbox(sandbox)
        made.append((runtime, sandbox_id))
        spec = unit_spec("main", detail=Process(command=("sh", "-c", script)), log_path="main.log")
        unit_id = await runtime.create_unit(sandbox_id, replace(spec, image=image), sandbox)
        await runtime.start_unit(unit_id)
        return Unit(runtime, unit_id, (await task(containerd_a, unit_id)).pid, tmp_path / "main.log")

    yield run
    for runtime, sandbox_id in made:
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()


async def task(containerd: PrivateContainerd, unit_id: UnitId) -> ContainerdTask:
    client = CriClient(containerd.endpoint)
    try:
        return await ContainerdTasks(client).get(unit_id)
    finally:
        await client.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_frozen_container_uses_no_cpu_time(start: Start, strategy: str) -> None:
    unit = await start(f"strategy={strategy}", BUSY)
    assert await unit.is_busy()
    await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.PAUSED
    assert not await unit.is_busy()
    await unit.standby.thaw(unit.id)
    assert await unit.state() is UnitState.RUNNING
    assert await unit.is_busy()


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
    assert await unit.is_busy()
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
    assert not await unit.is_busy()
    await unit.standby.thaw(unit.id)
    assert await unit.is_busy()


@pytest.mark.parametrize(
    ("parameters", "script"),
    [("strategy=signal", CHILD), ("strategy=signal&freeze-signal=10&thaw-signal=12", BUSY)],
    ids=["only the first process stops", "the signal is ignored"],
)
async def test_a_program_that_does_not_honour_the_signal_runs_on(
    start: Start, parameters: str, script: str
) -> None:
    unit = await start(parameters, script)
    await until(unit.cpu_ns)
    with pytest.raises(Conflict, match="does not honour signal"):
        await unit.standby.freeze(unit.id)
    assert await unit.state() is UnitState.RUNNING
    assert await unit.is_busy()
    stat = Path(f"/proc/{unit.pid}/stat").read_text()
    assert stat.rpartition(")")[2].split()[0] != "T"


@pytest.fixture
def zram() -> Iterator[None]:
    """64 MiB of swap in memory; nothing where the kernel has no zram, or swap may not be switched on."""
    control = Path("/sys/class/zram-control/hot_add")
    number = control.read_text().strip() if control.exists() else ""
    device = Path(f"/dev/zram{number}")
    if not number or not device.exists():
        pytest.skip("this kernel makes no zram devices")
    Path(f"/sys/block/zram{number}/disksize").write_text("64M")
    subprocess.run(["mkswap", "-q", device], check=True)
    subprocess.run(["swapon", device], check=True)
    yield
    subprocess.run(["swapoff", device], check=True)
    Path(f"/sys/block/zram{number}/reset").write_text("1")
    Path("/sys/class/zram-control/hot_remove").write_text(number)


async def test_a_hibernated_container_gives_its_memory_to_swap_and_gets_it_back(
    zram: None, start: Start
) -> None:
    fill = "x=$(head -c 24000000 /dev/zero | tr '\\0' a); echo filled; trap 'echo ${#x}' USR1; "
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
