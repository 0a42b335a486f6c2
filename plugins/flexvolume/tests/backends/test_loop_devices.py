"""Loop devices, in a tree that looks like sysfs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.commands import Commands
from kubeletx_flexvolume.backends.loop_devices import LoopDevices

from kubeletx.api import Conflict, Unavailable
from kubeletx.testing import FakeClock
from plugins.flexvolume.tests.fake_programs import FakePrograms

IMAGE = "/pool/pv-1"


@pytest.fixture
def sys_block(tmp_path: Path) -> Path:
    """A sysfs with an unused loop device and a disk."""
    place = tmp_path / "block"
    for name in ("loop0", "vda"):
        (place / name).mkdir(parents=True)
    return place


@pytest.fixture
def devices(programs: FakePrograms, sys_block: Path, tmp_path: Path) -> LoopDevices:
    return LoopDevices(Commands(tmp_path), FakeClock(), sys_block)


def add(sys_block: Path, name: str, file: str, *, ending: bool = False, read_only: bool = False) -> None:
    directory = sys_block / name
    (directory / "loop").mkdir(parents=True, exist_ok=True)
    (directory / "loop" / "backing_file").write_bytes(f"{file}\n".encode("utf-8", "surrogateescape"))
    (directory / "loop" / "autoclear").write_text(f"{ending:d}\n")
    (directory / "ro").write_text(f"{read_only:d}\n")


def test_a_device_is_found_by_its_file(devices: LoopDevices, sys_block: Path) -> None:
    add(sys_block, "loop1", "/pool/pv-2")
    add(sys_block, "loop7", IMAGE, read_only=True)
    found = devices.find(IMAGE)
    assert found is not None
    assert (found.device, found.is_read_only, found.is_ending, found.is_deleted) == (
        "/dev/loop7",
        True,
        False,
        False,
    )
    assert devices.find("/pool/pv-3") is None


def test_a_device_whose_file_was_deleted_is_found(devices: LoopDevices, sys_block: Path) -> None:
    add(sys_block, "loop1", f"{IMAGE} (deleted)", ending=True)
    found = devices.find(IMAGE)
    assert found is not None
    assert found.is_deleted
    assert found.is_ending


def test_a_file_name_may_have_any_bytes(devices: LoopDevices, sys_block: Path) -> None:
    add(sys_block, "loop1", "/pool/\udcff\n")
    assert devices.file_of("/dev/loop1") == "/pool/\udcff\n"


@pytest.mark.parametrize("source", ["", "/dev/loop0", "tmpfs", "..", "host:/path", "x" * 300])
def test_other_sources_have_no_file(devices: LoopDevices, source: str) -> None:
    assert devices.file_of(source) == ""


def test_without_loop_devices_nothing_is_found(programs: FakePrograms, tmp_path: Path) -> None:
    assert LoopDevices(Commands(tmp_path), FakeClock(), tmp_path / "none").find(IMAGE) is None


async def test_an_attached_file_gets_the_device_that_losetup_names(
    devices: LoopDevices, sys_block: Path, programs: FakePrograms
) -> None:
    add(sys_block, "loop3", IMAGE)
    (sys_block / "loop3").rename(sys_block / "later")
    programs.answer("losetup", "/dev/loop3\n", then=f"mv {sys_block}/later {sys_block}/loop3")
    assert await devices.attach(IMAGE, volume="pv-1", read_only=False) == "/dev/loop3"
    assert await devices.attach(IMAGE, volume="pv-1", read_only=False) == "/dev/loop3"
    assert programs.calls == [f"losetup --find --show --nooverlap -- {IMAGE}"]


async def test_a_file_that_is_attached_by_another_path_is_a_conflict(
    devices: LoopDevices, sys_block: Path, programs: FakePrograms
) -> None:
    add(sys_block, "loop3", "/other/link")
    programs.answer("losetup", "/dev/loop3\n")
    with pytest.raises(Conflict, match="another path"):
        await devices.attach(IMAGE, volume="pv-1", read_only=False)


async def test_a_device_does_not_count_as_gone_while_files_cannot_be_opened(
    devices: LoopDevices, sys_block: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the record would be released, and another node could attach the volume that is still attached here."""
    add(sys_block, "loop3", IMAGE)

    def open_nothing(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", open_nothing)
    with pytest.raises(Unavailable, match="Too many open files"):
        await devices.detach(IMAGE, volume="pv-1")
