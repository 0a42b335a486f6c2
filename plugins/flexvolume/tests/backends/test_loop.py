"""Backend loop: images of a pool on loop devices, with a model of sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.loop import LoopBackend
from kubeletx_flexvolume.backends.loop_devices import LoopDevices
from kubeletx_flexvolume.backends.pools import Pools
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.values import AccessMode

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.testing import FakeClock
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import BOOT, MIB, SysLoop, holder, mount, volume
from plugins.flexvolume.tests.fake_programs import FakePrograms

DEVICE = AttachedSource(type=SourceType.DEVICE, source="/dev/loop3")


@pytest.fixture
def system(tmp_path: Path) -> SysLoop:
    return SysLoop(tmp_path / "block")


@pytest.fixture
def backend(pools: Pools, commands: Commands, system: SysLoop) -> LoopBackend:
    return LoopBackend(pools, LoopDevices(commands, FakeClock(), system.directory), at_once, boot_id=BOOT)


async def test_a_missing_image_is_made_attached_found_and_detached(
    backend: LoopBackend, system: SysLoop, programs: FakePrograms, pool: Path
) -> None:
    one = volume("loop", size_bytes=MIB)
    programs.answer("losetup.--find", "/dev/loop3\n", then=system.adding(f"{pool}/data"))
    programs.answer("losetup.--detach", then=system.removing())
    assert await backend.find(one) is None
    assert await backend.attach(one, read_only=False, secrets={}) == DEVICE
    assert (pool / "data").stat().st_size == MIB
    assert await backend.find(one) == DEVICE
    await backend.detach(one)
    assert await backend.find(one) is None
    await backend.detach(one)
    assert len(programs.calls) == 2


async def test_a_missing_image_without_a_size_is_not_found(
    backend: LoopBackend, programs: FakePrograms
) -> None:
    with pytest.raises(NotFound):
        await backend.attach(volume("loop"), read_only=False, secrets={})
    assert programs.calls == []


def test_many_writers_of_a_shared_image_are_refused(backend: LoopBackend) -> None:
    many = (AccessMode.READ_WRITE_MANY,)
    backend.check(volume("loop", access_modes=many))
    backend.check(volume("loop", pool="shared"))
    with pytest.raises(InvalidConfig, match="which destroys it"):
        backend.check(volume("loop", pool="shared", access_modes=many))


async def test_a_holder_is_fenced_only_if_this_kernel_has_no_device(
    backend: LoopBackend, system: SysLoop, pool: Path
) -> None:
    one = volume("loop")
    result = await backend.fence(one, holder())
    assert (result.fenced, result.why) == (True, "no loop device of this machine has its image")
    result = await backend.fence(one, holder(boot_id="other"))
    assert (result.fenced, result.why) == (False, "n2 attached it under another kernel (boot ID other)")
    assert "boot ID unknown" in (await backend.fence(one, holder(boot_id=""))).why
    result = await backend.fence(volume("loop", pool="shared"), holder())
    assert (result.fenced, result.why) == (False, "other machines reach pool shared, too")
    system.add(f"{pool}/data")
    result = await backend.fence(one, holder())
    assert (result.fenced, result.why) == (False, "it is attached to this machine as /dev/loop3")


def test_a_mounted_image_of_a_pool_is_recognized(backend: LoopBackend, system: SysLoop, pool: Path) -> None:
    assert backend.identify("pv-1", mount()) is None
    system.add("/elsewhere/data")
    assert backend.identify("pv-1", mount()) is None
    (system.directory / "loop3" / "loop" / "backing_file").write_text(f"{pool}/data\n")
    assert backend.identify("pv-1", mount(fs_type="xfs")) == volume("loop", fs_type="xfs")
