"""Loop devices as sysfs shows them, and the commands of losetup(8)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.loop_devices import LoopDevices
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import Conflict, Unavailable
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.backends.backend_model import SysLoop
from plugins.flexvolume.tests.fake_programs import FakePrograms

FILE = "/pool/data"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def system(tmp_path: Path) -> SysLoop:
    return SysLoop(tmp_path / "block")


@pytest.fixture
def devices(commands: Commands, clock: FakeClock, system: SysLoop) -> LoopDevices:
    return LoopDevices(commands, clock, system.directory)


def test_a_device_is_found_by_its_exact_file(devices: LoopDevices, system: SysLoop) -> None:
    assert devices.find(FILE) is None
    system.add("/pool/data2", name="loop1")
    assert devices.find(FILE) is None
    system.add(FILE)
    found = devices.find(FILE)
    assert found is not None
    assert (found.device, found.file, found.is_deleted, found.is_read_only, found.is_ending) == (
        "/dev/loop3",
        FILE,
        False,
        False,
        False,
    )


def test_a_device_of_a_deleted_file_is_found(devices: LoopDevices, system: SysLoop) -> None:
    system.add(f"{FILE} (deleted)")
    found = devices.find(FILE)
    assert found is not None
    assert found.is_deleted
    assert devices.file_of("/dev/loop3") == FILE


@pytest.mark.parametrize("device", ["/dev/loop9", "/dev/loop77", "/dev/vda", "tmpfs", ""])
def test_a_device_without_a_file_has_none(devices: LoopDevices, device: str) -> None:
    assert devices.file_of(device) == ""


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_is_attached_once(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms, read_only: bool
) -> None:
    programs.answer("losetup", "/dev/loop3\n", then=system.adding(FILE, is_read_only=read_only))
    for _ in range(2):
        assert await devices.attach(FILE, volume="pv-1", read_only=read_only) == "/dev/loop3"
    option = " --read-only" if read_only else ""
    assert programs.calls == [f"losetup --find --show{option} -- {FILE}"]


async def test_a_failed_attach_says_what_losetup_says(devices: LoopDevices, programs: FakePrograms) -> None:
    programs.answer("losetup", code=1, err="losetup: cannot find an unused loop device")
    with pytest.raises(Unavailable, match=r"volume pv-1: losetup .* cannot find an unused loop device"):
        await devices.attach(FILE, volume="pv-1", read_only=False)


async def test_a_file_that_is_attached_by_another_path_is_refused(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.touch()
    found = path.stat()
    system.add("/other/data")
    answer = f"  {found.st_ino}  {os.major(found.st_dev)}:{os.minor(found.st_dev)}\n"
    programs.answer("losetup.--list", answer)
    with pytest.raises(Conflict, match=r"is attached as /dev/loop3 by path /other/data; detach it"):
        await devices.attach(str(path), volume="pv-1", read_only=False)
    assert programs.calls == ["losetup --list --noheadings --output BACK-INO,BACK-MAJ:MIN /dev/loop3"]


@pytest.mark.parametrize("answer", ["", "7 1:2\n"])
async def test_another_file_with_the_same_name_is_not_an_obstacle(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms, tmp_path: Path, answer: str
) -> None:
    path = tmp_path / "data"
    path.touch()
    system.add("/other/data", name="loop1")
    programs.answer("losetup.--list", answer)
    programs.answer("losetup.--find", "/dev/loop3\n", then=system.adding(str(path)))
    assert await devices.attach(str(path), volume="pv-1", read_only=False) == "/dev/loop3"


async def test_devices_of_files_with_other_names_are_not_asked(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms
) -> None:
    """The storage of one of them may hang, and with it each program that asks for its number."""
    system.add("/other/hangs", name="loop1")
    programs.answer("losetup.--find", "/dev/loop3\n", then=system.adding(FILE))
    await devices.attach(FILE, volume="pv-1", read_only=False)
    assert programs.calls == [f"losetup --find --show -- {FILE}"]


async def test_a_device_that_has_another_file_than_asked_for_is_not_used(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms
) -> None:
    programs.answer("losetup", "/dev/loop3\n", then=system.adding("/other/file"))
    with pytest.raises(Unavailable, match="/pool/data is not the file of /dev/loop3"):
        await devices.attach(FILE, volume="pv-1", read_only=False)


async def test_a_device_that_disappears_is_not_used(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms
) -> None:
    system.add(FILE, is_ending=True)
    with pytest.raises(Unavailable, match="disappears when its last user closes it"):
        await devices.attach(FILE, volume="pv-1", read_only=False)
    assert programs.calls == []


async def test_a_device_of_a_deleted_file_is_not_used(devices: LoopDevices, system: SysLoop) -> None:
    """A new file with the same name has other content."""
    system.add(f"{FILE} (deleted)")
    with pytest.raises(Unavailable, match="of a deleted file"):
        await devices.attach(FILE, volume="pv-1", read_only=False)


async def test_a_read_only_device_serves_readers_only(devices: LoopDevices, system: SysLoop) -> None:
    system.add(FILE, is_read_only=True)
    assert await devices.attach(FILE, volume="pv-1", read_only=True) == "/dev/loop3"
    with pytest.raises(Conflict, match="is read-only; pods that write must wait for its end"):
        await devices.attach(FILE, volume="pv-1", read_only=False)


async def test_a_device_is_detached(devices: LoopDevices, system: SysLoop, programs: FakePrograms) -> None:
    await devices.detach(FILE, volume="pv-1")
    assert programs.calls == []
    system.add(FILE)
    programs.answer("losetup", then=system.removing())
    await devices.detach(FILE, volume="pv-1")
    assert programs.calls == ["losetup --detach /dev/loop3"]


async def test_a_device_that_is_gone_when_losetup_fails_is_detached(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms
) -> None:
    system.add(FILE)
    programs.answer("losetup", code=1, err="No such device or address", then=system.removing())
    await devices.detach(FILE, volume="pv-1")


async def test_a_failed_detach_says_what_losetup_says(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms
) -> None:
    system.add(FILE)
    programs.answer("losetup", code=1, err="detach failed: Device or resource busy")
    with pytest.raises(Unavailable, match="Device or resource busy"):
        await devices.detach(FILE, volume="pv-1")


async def test_a_device_in_use_is_waited_for_and_then_reported(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms, clock: FakeClock
) -> None:
    """losetup succeeds; the kernel removes the file when the last user closes the device."""
    system.add(FILE)
    programs.answer("losetup", then=f"echo 1 > {system.directory}/loop3/loop/autoclear")
    detaching = asyncio.create_task(devices.detach(FILE, volume="pv-1"), name="detach")
    await until(lambda: clock.sleepers)
    assert not detaching.done()
    clock.advance(3)
    with pytest.raises(Unavailable, match=r"loop device /dev/loop3 is in use; stop the process"):
        await detaching
    assert programs.calls == ["losetup --detach /dev/loop3"]


async def test_a_device_that_ends_already_is_not_detached_again(
    devices: LoopDevices, system: SysLoop, programs: FakePrograms, clock: FakeClock
) -> None:
    system.add(FILE, is_ending=True)
    detaching = asyncio.create_task(devices.detach(FILE, volume="pv-1"), name="detach")
    await until(lambda: clock.sleepers)
    (system.directory / "loop3" / "loop" / "backing_file").unlink()
    clock.advance(0.1)
    await detaching
    assert programs.calls == []
