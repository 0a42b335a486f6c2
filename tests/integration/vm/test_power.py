"""Power, snapshots, interfaces and size of two machines, which all tests of this file share in order.

`guest` runs Linux; a boot under emulation takes nine seconds. `tiny` boots at once and obeys the power button: it is for
tests that count boots. Each test takes its machine as the one before left it and leaves it running. After a test that
failed, the machine is brought up again, so that the others do not fail with it.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_libvirt.config import NetworkTarget, Settings
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    ImageSpec,
    InvalidPod,
    Machine,
    Nic,
    NicState,
    NotFound,
    Resources,
    SupportsExec,
    SupportsMachine,
    SupportsNics,
    SupportsResize,
    SupportsSnapshots,
    UnitId,
    UnitSpec,
    UnitState,
    Unsupported,
)
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec
from kubeletx.testing.contract.base import with_image
from kubeletx_testing.lab import Lab
from kubeletx_testing.lab.disk import SmallDisk
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.machines import UP, load_machine_image
from kubeletx_testing.lab.tiny_machine import UP as TINY_UP
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from kubeletx_testing.lab.tools import get_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
BRIDGE = "kxpower0"


class Guest:
    """The machine and the runtime that has it."""

    def __init__(self, libvirtd: PrivateLibvirtd, directory: Path, image: Path, says: str) -> None:
        """`says`: what the guest of `image` prints at each boot."""
        self.libvirtd = libvirtd
        self.directory = directory
        self.image = image
        self.says = says
        self.host = FakeHost(directory, agent_id=directory.name, clock=FakeClock(auto_advance=True))
        self.runtime = self.make_runtime()
        self.id = UnitId("")
        self.log = directory / "logs" / "main.log"

    def make_runtime(self) -> LibvirtRuntime:
        settings = Settings(
            accelerator="qemu",
            image_directories=(str(self.image.parent),),
            networks={"extra": NetworkTarget(bridge=BRIDGE)},
        )
        return LibvirtRuntime(endpoint(self.libvirtd.url, workload_type="vm"), settings, self.host)

    async def boot(self) -> None:
        """Make the machine and wait until the guest says that it is up."""
        await self.runtime.open()
        self.log.parent.mkdir()
        sandbox = sandbox_spec(self.directory.name, log_directory=str(self.log.parent))
        sandbox_id = await self.runtime.create_sandbox(sandbox)
        unit = UnitSpec(
            name="main",
            image=ImageSpec(requested=str(self.image)),
            detail=Machine(hostname="power", max_vcpus=2, max_memory_bytes=384 * MIB),
            resources=Resources(cpu_limit_millicores=1000, memory_limit_bytes=256 * MIB),
            log_path="main.log",
        )
        unit = await with_image(self.runtime, unit, sandbox)
        self.id = await self.runtime.create_unit(sandbox_id, unit, sandbox)
        await self.runtime.start_unit(self.id)
        await self.wait_ups(1)

    async def end(self) -> None:
        """Remove the machine."""
        for summary in await self.runtime.list_sandboxes({}):
            await self.runtime.remove_sandbox(summary.id)
        await self.runtime.close()

    async def restart_agent(self) -> None:
        """Another runtime object over the same files, as after a restart of the agent."""
        await self.runtime.close()
        self.runtime = self.make_runtime()
        await self.runtime.open()

    async def bring_up(self) -> None:
        """Let the machine run if the last test left it in another state."""
        state, before = await self.state(), self.ups()
        if state is UnitState.EXITED:
            await self.runtime.start_unit(self.id)
            await self.wait_ups(before + 1)
        elif state is not UnitState.RUNNING:
            await power(self).resume(self.id)

    def print_logs(self) -> None:
        """Print what libvirtd and the emulator logged; pytest shows it for a test that fails."""
        logs = [self.libvirtd.directory.with_suffix(".log")]
        logs += sorted((self.libvirtd.directory / "d4" / "qemu").glob("*.log"))
        for path in logs:
            if path.is_file():
                print(path, *path.read_text(errors="replace").splitlines()[-40:], sep="\n")

    async def state(self) -> UnitState:
        return (await self.runtime.unit_status(self.id)).summary.state

    def ups(self) -> int:
        """How often the guest came up."""
        return self.log.read_text(errors="replace").count(self.says)

    async def wait_ups(self, count: int) -> None:
        async def is_up() -> bool:
            return self.ups() >= count

        await until(is_up, f"boot {count}", 150)

    async def wait_agent(self) -> None:
        """Wait until the guest's agent takes commands."""
        agent = self.runtime.capability(SupportsExec)
        assert agent is not None
        assert (await agent.exec_sync(self.id, ("true",), 30)).exit_code == 0


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    """Where the machine's disk is, so that it can be filled."""
    with SmallDisk(tmp_path_factory.mktemp("vm-power") / "disk", size_bytes=700 * MIB) as one:
        yield one


@pytest.fixture(scope="module")
def libvirtd(lab: Lab, disk: SmallDisk) -> Iterator[PrivateLibvirtd]:
    """One for the whole file; it sees the mounts that are there when it starts."""
    one = PrivateLibvirtd(lab.base_dir, name="lv-power")
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def bridge() -> Iterator[None]:
    """A bridge that nothing else uses, for the interfaces to plug in."""
    subprocess.run([get_tool("ip"), "link", "add", BRIDGE, "type", "bridge"], check=True)
    yield
    subprocess.run([get_tool("ip"), "link", "delete", BRIDGE], check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_guest(libvirtd: PrivateLibvirtd, bridge: None, disk: SmallDisk) -> AsyncIterator[Guest]:
    """The guest with Linux, of all tests."""
    one = Guest(libvirtd, disk.directory, load_machine_image(), UP)
    await one.boot()
    yield one
    await one.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_tiny(
    libvirtd: PrivateLibvirtd, bridge: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Guest]:
    """The machine that boots at once, of all tests."""
    image = make_tiny_machine_image(tmp_path_factory.mktemp("tiny"))
    one = Guest(libvirtd, tmp_path_factory.mktemp("vm-tiny"), image, TINY_UP)
    await one.boot()
    yield one
    await one.end()


@pytest_asyncio.fixture(loop_scope="module")
async def guest(shared_guest: Guest) -> AsyncIterator[Guest]:
    """The guest with Linux, up."""
    await shared_guest.bring_up()
    yield shared_guest
    shared_guest.print_logs()


@pytest_asyncio.fixture(loop_scope="module")
async def tiny(shared_tiny: Guest) -> AsyncIterator[Guest]:
    """The machine that boots at once, up."""
    await shared_tiny.bring_up()
    yield shared_tiny
    shared_tiny.print_logs()


async def test_a_suspended_machine_is_found_parked_after_agent_and_libvirt_restarted_and_goes_on(
    guest: Guest,
) -> None:
    await power(guest).pause(guest.id)
    assert await guest.state() is UnitState.PAUSED
    with pytest.raises(Conflict, match="resume it first"):
        await power(guest).reboot(guest.id, 0)
    await power(guest).suspend(guest.id)
    started = (await guest.runtime.unit_status(guest.id)).started_at_ns
    await guest.runtime.close()
    guest.libvirtd.stop()
    guest.libvirtd.start()
    await guest.restart_agent()
    status = await guest.runtime.unit_status(guest.id)
    assert (status.summary.state, status.exit_code) == (UnitState.SUSPENDED, None)
    await power(guest).resume(guest.id)
    status = await guest.runtime.unit_status(guest.id)
    assert (status.summary.state, status.started_at_ns) == (UnitState.RUNNING, started)
    assert guest.ups() == 1


async def test_a_suspended_machine_shuts_down_in_order_and_only_without_grace_loses_its_memory(
    tiny: Guest,
) -> None:
    before = tiny.ups()
    await power(tiny).suspend(tiny.id)
    await power(tiny).power_off(tiny.id, 20)
    status = await tiny.runtime.unit_status(tiny.id)
    assert (status.summary.state, status.exit_code, status.reason) == (UnitState.EXITED, 0, "Completed")
    await tiny.runtime.start_unit(tiny.id)
    await tiny.wait_ups(before + 1)
    assert "MemoryDiscarded" not in tiny.host.events.reasons()  # type: ignore[attr-defined] # of the fake
    await power(tiny).suspend(tiny.id)
    await tiny.runtime.stop_unit(tiny.id, 0)
    status = await tiny.runtime.unit_status(tiny.id)
    assert (status.summary.state, status.exit_code) == (UnitState.EXITED, 137)
    assert "MemoryDiscarded" in tiny.host.events.reasons()  # type: ignore[attr-defined] # of the fake
    await tiny.runtime.start_unit(tiny.id)
    await tiny.wait_ups(before + 2)


async def test_a_paused_machine_has_a_snapshot_without_memory_and_a_restored_disk_is_another_boot(
    tiny: Guest,
) -> None:
    snapshots = tiny.runtime.capability(SupportsSnapshots)
    assert snapshots is not None
    before = tiny.ups()
    await power(tiny).pause(tiny.id)
    assert not (await snapshots.create_snapshot(tiny.id, "paused", False)).with_memory
    assert await tiny.state() is UnitState.PAUSED
    await power(tiny).resume(tiny.id)
    started_at_ns = (await tiny.runtime.unit_status(tiny.id)).started_at_ns
    await tiny.host.clock.sleep(60)
    await snapshots.restore_snapshot(tiny.id, "paused")
    await tiny.wait_ups(before + 1)
    status = await tiny.runtime.unit_status(tiny.id)
    assert status.summary.state is UnitState.RUNNING
    assert status.started_at_ns > started_at_ns
    await snapshots.delete_snapshot(tiny.id, "paused")


async def test_a_reboot_stays_in_the_domain_is_counted_and_its_delay_survives_the_agent(
    tiny: Guest,
) -> None:
    before = tiny.ups()
    await power(tiny).reboot(tiny.id, 3600)
    await tiny.restart_agent()

    async def is_counted() -> bool:
        return (await tiny.runtime.unit_status(tiny.id)).restarts == 1

    await until(is_counted, "the reboot", 40)
    await tiny.wait_ups(before + 1)
    assert await tiny.state() is UnitState.RUNNING


async def test_a_machine_that_is_switched_off_shuts_down_in_order_and_comes_back_with_its_disk(
    tiny: Guest,
) -> None:
    before = tiny.ups()
    await power(tiny).power_off(tiny.id, 20)
    status = await tiny.runtime.unit_status(tiny.id)
    assert (status.summary.state, status.exit_code, status.reason) == (UnitState.EXITED, 0, "Completed")
    with pytest.raises(Conflict, match="start it first"):
        await power(tiny).pause(tiny.id)
    await tiny.runtime.start_unit(tiny.id)
    await tiny.wait_ups(before + 1)
    assert (await tiny.runtime.unit_status(tiny.id)).restarts == 1


async def test_an_interface_comes_and_goes_and_the_pod_networks_own_stays(guest: Guest) -> None:
    nics = guest.runtime.capability(SupportsNics)
    assert nics is not None
    nic = Nic(name="eth9", network="extra")
    for _ in range(2):
        await nics.attach_nic(guest.id, nic)
    (found,) = await nics.list_nics(guest.id)
    assert (found.name, found.state, found.network) == ("eth9", NicState.ATTACHED, "extra")
    await nics.attach_nic(guest.id, Nic(name="eth0", network="extra"))
    with pytest.raises(Unsupported, match="stays with the pod"):
        await nics.detach_nic(guest.id, "eth0")
    await nics.detach_nic(guest.id, "eth9")

    async def is_gone() -> bool:
        return "eth9" not in [one.name for one in await nics.list_nics(guest.id)]

    await until(is_gone, "the end of eth9", 20)
    await nics.detach_nic(guest.id, "eth9")


async def test_snapshots_bring_back_memory_or_only_the_disk_and_an_unknown_one_changes_nothing(
    guest: Guest,
) -> None:
    snapshots = guest.runtime.capability(SupportsSnapshots)
    assert snapshots is not None
    await guest.wait_agent()
    before = guest.ups()
    restarts = (await guest.runtime.unit_status(guest.id)).restarts
    whole = await snapshots.create_snapshot(guest.id, "whole", True)
    assert whole.with_memory
    assert MIB < (whole.size_bytes or 0) < 1000 * MIB
    assert not (await snapshots.create_snapshot(guest.id, "disk", False)).with_memory
    with pytest.raises(AlreadyExists):
        await snapshots.create_snapshot(guest.id, "disk", False)
    with pytest.raises(NotFound):
        await snapshots.restore_snapshot(guest.id, "none")
    assert await guest.state() is UnitState.RUNNING
    await snapshots.restore_snapshot(guest.id, "whole")
    status = await guest.runtime.unit_status(guest.id)
    assert (status.summary.state, status.restarts, guest.ups()) == (UnitState.RUNNING, restarts, before)
    await snapshots.restore_snapshot(guest.id, "disk")
    assert await guest.state() is UnitState.RUNNING
    await guest.wait_ups(before + 1)
    for name in ("whole", "disk", "disk"):
        await snapshots.delete_snapshot(guest.id, name)
    assert list(await snapshots.list_snapshots(guest.id)) == []


async def test_a_guest_grows_within_its_maximums_and_an_emulated_one_keeps_its_processors(
    guest: Guest,
) -> None:
    resize = guest.runtime.capability(SupportsResize)
    assert resize is not None

    async def granted(vcpus: int, memory_bytes: int) -> None:
        async def is_granted() -> bool:
            seen = (await guest.runtime.unit_status(guest.id)).resources
            return (seen["vcpus"], seen["memory_limit_bytes"]) == (vcpus, memory_bytes)

        await until(is_granted, f"{vcpus} processors and {memory_bytes} bytes", 20)

    await guest.wait_agent()
    await granted(1, 256 * MIB)
    wanted = Resources(cpu_limit_millicores=2000, memory_limit_bytes=384 * MIB)
    await resize.update_resources(guest.id, wanted)
    await granted(2, 384 * MIB)
    with pytest.raises(InvalidPod, match="can grow to"):
        await resize.update_resources(guest.id, Resources(memory_limit_bytes=512 * MIB))
    await granted(2, 384 * MIB)
    with pytest.raises(Unsupported, match="emulated and has 2 processors, 1 are requested"):
        await resize.update_resources(
            guest.id, Resources(cpu_limit_millicores=1000, memory_limit_bytes=256 * MIB)
        )
    await granted(2, 384 * MIB)
    await resize.update_resources(guest.id, Resources(memory_limit_bytes=256 * MIB))
    await granted(2, 256 * MIB)
    assert await guest.state() is UnitState.RUNNING


def power(guest: Guest) -> SupportsMachine:
    found = guest.runtime.capability(SupportsMachine)
    assert found is not None
    return found


async def until(look: Callable[[], Awaitable[bool]], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await look():
        assert time.monotonic() < deadline, f"{what} did not come in {seconds} s"
        await asyncio.sleep(0.1)


async def test_a_machine_whose_disk_is_full_stands_still_says_why_and_goes_on(
    guest: Guest, disk: SmallDisk
) -> None:
    agent = guest.runtime.capability(SupportsExec)
    assert agent is not None
    await guest.wait_agent()
    disk.fill(leave_bytes=MIB)
    command = "dd if=/dev/urandom of=/dev/vda bs=64k seek=400 count=800 conv=notrunc >/dev/null 2>&1 &"
    await agent.exec_sync(guest.id, ("sh", "-c", command), 30)

    async def stands_still() -> bool:
        return await guest.state() is UnitState.PAUSED

    await until(stands_still, "the full disk", 60)
    status = await guest.runtime.unit_status(guest.id)
    assert (status.reason, "no space left for its disk vda" in status.message) == ("DiskFull", True)
    disk.free()
    await power(guest).resume(guest.id)
    await guest.wait_agent()
    assert await guest.state() is UnitState.RUNNING
