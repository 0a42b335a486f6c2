"""libvirtd stops, dies, hangs and comes back while machines run: the machines never notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import (
    ImageSpec,
    Machine,
    PodUid,
    Resources,
    Runtime,
    RuntimeEvent,
    SandboxId,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitState,
)
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec
from kubeletx.testing.contract.base import eventually, with_image
from kubeletx_testing.lab import Lab, sweep
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-faults")
    one.start()
    yield one
    one.end()


@pytest_asyncio.fixture
async def runtime(libvirtd: PrivateLibvirtd, tmp_path: Path) -> AsyncIterator[Runtime]:
    settings = Settings(accelerator="qemu", image_directories=(str(tmp_path),))
    host = FakeHost(tmp_path, clock=FakeClock(auto_advance=True))
    one = LibvirtRuntime(endpoint(libvirtd.url, workload_type="vm"), settings, host)
    await one.open()
    yield one
    await one.close()


async def start_machine(runtime: Runtime, logs: Path) -> tuple[SandboxId, UnitId]:
    sandbox = sandbox_spec("faults", log_directory=str(logs))
    sandbox_id = await runtime.create_sandbox(sandbox)
    spec = UnitSpec(
        name="main",
        image=ImageSpec(requested=str(make_tiny_machine_image(logs))),
        detail=Machine(),
        resources=Resources(cpu_limit_millicores=1000, memory_limit_bytes=32 << 20),
        log_path="main.log",
    )
    unit_id = await runtime.create_unit(sandbox_id, await with_image(runtime, spec, sandbox), sandbox)
    await runtime.start_unit(unit_id)
    return sandbox_id, unit_id


async def reopen(runtime: Runtime) -> None:
    async def look() -> bool | None:
        try:
            await runtime.open()
        except Unavailable:
            return None
        return True

    await eventually(look, "a new connection", seconds=60)


async def lost(runtime: Runtime) -> bool | None:
    try:
        await runtime.list_units({})
    except Unavailable:
        return True
    return None


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_machines_go_on_and_are_found_again_when_libvirtd_restarts(
    libvirtd: PrivateLibvirtd, runtime: Runtime, tmp_path: Path, end: str
) -> None:
    sandbox_id, unit_id = await start_machine(runtime, tmp_path)
    before = await runtime.unit_status(unit_id)
    (emulator,) = libvirtd.emulators()
    await asyncio.to_thread(getattr(libvirtd, end))
    await eventually(lambda: lost(runtime), "the loss of the connection")
    for call in (runtime.health(), runtime.list_sandboxes({}), runtime.unit_status(unit_id)):
        with pytest.raises(Unavailable):
            await call
    assert libvirtd.emulators() == [emulator]
    await asyncio.to_thread(libvirtd.start)
    await reopen(runtime)
    after = await runtime.unit_status(unit_id)
    assert after.summary == before.summary
    assert after.started_at_ns == before.started_at_ns
    assert libvirtd.emulators() == [emulator]
    await runtime.remove_sandbox(sandbox_id)
    assert libvirtd.emulators() == []


async def test_the_end_of_a_machine_while_libvirtd_was_away_is_seen(
    libvirtd: PrivateLibvirtd, runtime: Runtime, tmp_path: Path
) -> None:
    sandbox_id, unit_id = await start_machine(runtime, tmp_path)
    await asyncio.to_thread(libvirtd.kill)
    await asyncio.to_thread(sweep.end_processes, libvirtd.emulators())
    await asyncio.to_thread(libvirtd.start)
    await reopen(runtime)

    async def ended() -> bool | None:
        state = (await runtime.unit_status(unit_id)).summary.state
        return True if state is UnitState.EXITED else None

    await eventually(ended, "the end of the machine")
    assert (await runtime.unit_status(unit_id)).exit_code not in (0, None)
    await runtime.remove_sandbox(sandbox_id)


async def test_a_libvirtd_that_hangs_is_noticed_and_costs_no_machine(
    libvirtd: PrivateLibvirtd, runtime: Runtime, tmp_path: Path
) -> None:
    sandbox_id, unit_id = await start_machine(runtime, tmp_path)
    (emulator,) = libvirtd.emulators()
    await asyncio.to_thread(libvirtd.pause)
    async with asyncio.timeout(40):
        with pytest.raises(Unavailable):
            await runtime.health()
    await asyncio.to_thread(libvirtd.resume)
    await reopen(runtime)
    assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING
    assert libvirtd.emulators() == [emulator]
    await runtime.remove_sandbox(sandbox_id)


async def test_the_event_stream_ends_with_the_connection(
    libvirtd: PrivateLibvirtd, runtime: LibvirtRuntime
) -> None:
    async def collect() -> list[RuntimeEvent]:
        return [event async for event in runtime.events()]

    collector = asyncio.create_task(collect())
    await asyncio.sleep(0)
    await asyncio.to_thread(libvirtd.kill)
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable):
            await collector


async def test_a_network_that_cannot_be_given_back_keeps_the_sandbox_and_not_its_machine(
    libvirtd: PrivateLibvirtd, runtime: LibvirtRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(uid: PodUid) -> None:
        raise Unavailable(f"no way to give back the addresses of {uid}")

    sandbox_id, _ = await start_machine(runtime, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(runtime.links, "release", refuse)
        with pytest.raises(Unavailable):
            await runtime.remove_sandbox(sandbox_id)
    assert libvirtd.emulators() == []
    assert list(await runtime.list_units({})) == []
    assert [one.id for one in await runtime.list_sandboxes({})] == [sandbox_id]
    await runtime.remove_sandbox(sandbox_id)
    assert list(await runtime.list_sandboxes({})) == []
