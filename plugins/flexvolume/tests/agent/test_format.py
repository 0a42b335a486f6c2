"""Looks at devices and their formatting, with fake programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.agent import format
from kubeletx_flexvolume.agent.format import FileSystems
from kubeletx_flexvolume.agent.namespace import MountNamespace
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import InvalidConfig, Unavailable
from plugins.flexvolume.tests.agent.agent_model import volume
from plugins.flexvolume.tests.fake_programs import FakePrograms


@pytest.fixture
def device(tmp_path: Path, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch) -> str:
    """A blank device. Programs `blkid`, `wipefs` and `probe` look at it."""
    programs.answer("blkid", code=2)
    programs.answer("wipefs")
    programs.answer("probe")
    monkeypatch.setattr(format, "PROBE", ("probe",))
    return str(tmp_path / "device")


@pytest.fixture
def systems(tmp_path: Path, programs: FakePrograms) -> FileSystems:
    return FileSystems(Commands(tmp_path), MountNamespace())


async def test_a_present_file_system_is_checked_and_used(
    systems: FileSystems, programs: FakePrograms, device: str
) -> None:
    programs.answer("blkid", "TYPE=ext4\n")
    programs.answer("fsck.ext4")
    assert await systems.look(volume(), device, read_only=False)
    assert programs.calls == [
        f"blkid -p -s TYPE -s PTTYPE -o export -- {device}",
        f"fsck.ext4 -p -- {device}",
    ]


async def test_a_read_only_volume_is_not_checked(
    systems: FileSystems, programs: FakePrograms, device: str
) -> None:
    programs.answer("blkid", "TYPE=ext4\n")
    assert await systems.look(volume(), device, read_only=True)
    assert len(programs.calls) == 1


async def test_xfs_repairs_itself(systems: FileSystems, programs: FakePrograms, device: str) -> None:
    programs.answer("blkid", "TYPE=xfs\n")
    assert await systems.look(volume(fs_type="xfs"), device, read_only=False)
    assert len(programs.calls) == 1


@pytest.mark.parametrize("code", [1, 2])
async def test_a_repaired_file_system_is_used(
    systems: FileSystems, programs: FakePrograms, device: str, code: int
) -> None:
    programs.answer("blkid", "TYPE=ext4\n")
    programs.answer("fsck.ext4", code=code)
    assert await systems.look(volume(), device, read_only=False)


@pytest.mark.parametrize(
    ("code", "words"), [(4, "fsck does not repair"), (12, "fsck does not repair"), (8, "exit status 8")]
)
async def test_a_damaged_file_system_is_not_mounted(
    systems: FileSystems, programs: FakePrograms, device: str, code: int, words: str
) -> None:
    programs.answer("blkid", "TYPE=ext4\n")
    programs.answer("fsck.ext4", "UNEXPECTED INCONSISTENCY", code=code)
    with pytest.raises(Unavailable, match=words):
        await systems.look(volume(), device, read_only=False)


async def test_a_blank_device_is_proved_blank(
    systems: FileSystems, programs: FakePrograms, device: str
) -> None:
    assert not await systems.look(volume(), device, read_only=False)
    assert [call.split()[0] for call in programs.calls] == ["blkid", "wipefs", "probe"]


@pytest.mark.parametrize(
    ("fs_type", "command"),
    [("ext4", "mkfs.ext4 -q -F -m0"), ("ext3", "mkfs.ext3 -q -F -m0"), ("xfs", "mkfs.xfs -q -f")],
)
async def test_a_device_is_formatted(
    systems: FileSystems, programs: FakePrograms, device: str, fs_type: str, command: str
) -> None:
    programs.answer(f"mkfs.{fs_type}")
    await systems.make(volume(fs_type=fs_type), device)
    assert programs.calls == [f"{command} -- {device}"]
    programs.answer(f"mkfs.{fs_type}", code=1, err="no space")
    with pytest.raises(Unavailable, match="no space"):
        await systems.make(volume(fs_type=fs_type), device)


async def test_a_blank_device_is_refused_for_a_pod_that_only_reads(
    systems: FileSystems, programs: FakePrograms, device: str
) -> None:
    with pytest.raises(InvalidConfig, match="it is blank, and the pod only reads"):
        await systems.look(volume(), device, read_only=True)
    programs.answer("probe", "it is read-only", code=1)
    with pytest.raises(InvalidConfig, match="it is blank, and the pod only reads"):
        await systems.look(volume(), device, read_only=True)
    with pytest.raises(InvalidConfig, match="it is read-only; it has no ext4 file system"):
        await systems.look(volume(), device, read_only=False)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("TYPE=xfs\n", "it contains xfs, and fsType is ext4"),
        ("PTTYPE=gpt\n", r"a partition table \(gpt\)"),
        ("TYPE=crypto_LUKS\n", "crypto_LUKS"),
        ("", "content of an unknown type"),
    ],
)
async def test_other_content_is_refused(
    systems: FileSystems, programs: FakePrograms, device: str, out: str, words: str
) -> None:
    programs.answer("blkid", out)
    with pytest.raises(InvalidConfig, match=words):
        await systems.look(volume(), device, read_only=False)
    assert len(programs.calls) == 1


async def test_unknown_content_is_never_blank(
    systems: FileSystems, programs: FakePrograms, device: str
) -> None:
    programs.answer("blkid", code=8)
    with pytest.raises(InvalidConfig, match="more than one kind of content"):
        await systems.look(volume(), device, read_only=False)
    programs.answer("blkid", code=1, err="cannot open")
    with pytest.raises(Unavailable, match="cannot open"):
        await systems.look(volume(), device, read_only=False)
    programs.answer("blkid", code=2)
    programs.answer("wipefs", "DEVICE OFFSET TYPE\n")
    with pytest.raises(InvalidConfig, match="is not formatted; erase it yourself"):
        await systems.look(volume(), device, read_only=False)
    programs.answer("wipefs")
    programs.answer("probe", "byte 8191 is not zero", code=1)
    with pytest.raises(InvalidConfig, match="byte 8191 is not zero"):
        await systems.look(volume(), device, read_only=False)
    programs.answer("probe", code=3)
    with pytest.raises(InvalidConfig, match="the look at its bytes failed with exit status 3"):
        await systems.look(volume(), device, read_only=False)
