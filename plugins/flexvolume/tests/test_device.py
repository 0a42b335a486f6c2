"""Looks at devices, their formatting and their growth."""

from __future__ import annotations

import pytest
from kubeletx_flexvolume.device import Device

from kubeletx.api import Unavailable, Unsupported
from kubeletx.linux.mounts import MountPoint
from plugins.flexvolume.tests.fake_volume import FakeVolume

PATH = "/dev/fake0"
EXT4 = f"DEVNAME={PATH}\nTYPE=ext4\n"


@pytest.fixture
def node() -> FakeVolume:
    """A node with a device of 1 GiB that is blank, unless a test changes an answer."""
    made = FakeVolume()
    made.answer("blkid", code=2)
    made.answer("blockdev", f"{1 << 30}\n")
    return made


@pytest.fixture
def device(node: FakeVolume) -> Device:
    return Device(PATH, node)


def names(node: FakeVolume) -> list[str]:
    return [call.split()[0] for call in node.ran]


async def test_a_blank_device_is_proved_blank(node: FakeVolume, device: Device) -> None:
    assert await device.look("ext4", read_only=False) == ""
    assert node.ran == [
        f"blkid -p -s TYPE -s PTTYPE -o export -- {PATH}",
        f"wipefs --no-act -- {PATH}",
        f"probe {PATH}",
    ]


async def test_an_interrupted_format_is_known_to_the_last_look(node: FakeVolume, device: Device) -> None:
    await device.look("ext4", read_only=False, is_interrupted=True)
    assert node.ran[-1] == f"probe {PATH} interrupted"


@pytest.mark.parametrize("asked", ["ext4", ""])
async def test_a_present_file_system_is_checked_and_used(
    node: FakeVolume, device: Device, asked: str
) -> None:
    node.answer("blkid", EXT4)
    assert await device.look(asked, read_only=False) == "ext4"
    assert node.ran[1:] == [f"fsck.ext4 -p {PATH}"]


async def test_a_volume_that_is_only_read_is_neither_checked_nor_formatted(
    node: FakeVolume, device: Device
) -> None:
    with pytest.raises(Unavailable, match="the pod only reads, so that it is not formatted"):
        await device.look("ext4", read_only=True)
    node.answer("blkid", EXT4)
    assert await device.look("ext4", read_only=True) == "ext4"
    assert names(node) == ["blkid", "blkid"]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("TYPE=xfs\n", "it contains xfs, and fsType is ext4"),
        (f"{EXT4}PTTYPE=gpt\n", r"a partition table \(gpt\)"),
        ("TYPE=crypto_LUKS\n", "crypto_LUKS"),
        ("", "content of an unknown type"),
    ],
)
async def test_other_content_is_neither_mounted_nor_overwritten(
    node: FakeVolume, device: Device, out: str, words: str
) -> None:
    node.answer("blkid", out)
    with pytest.raises(Unavailable, match=words):
        await device.look("ext4", read_only=False)
    assert names(node) == ["blkid"]


@pytest.mark.parametrize("out", ["", "PTTYPE=gpt\n"])
async def test_without_a_file_system_no_asked_type_is_right(
    node: FakeVolume, device: Device, out: str
) -> None:
    node.answer("blkid", out)
    with pytest.raises(Unavailable, match="cannot be mounted: it contains"):
        await device.look("", read_only=False)


@pytest.mark.parametrize(
    ("code", "out", "err", "words"),
    [
        (8, "", "ambivalent result", "more than one kind of content"),
        (4, "", "usage", "blkid failed with exit status 4: usage"),
        (2, "TYPE=ext4\n", "", "blkid failed with exit status 2"),
        (-9, "", "", "exit status -9: no output"),
    ],
)
async def test_an_unclear_answer_of_blkid_is_not_blank(
    node: FakeVolume, device: Device, code: int, out: str, err: str, words: str
) -> None:
    node.answer("blkid", out, code=code, err=err)
    with pytest.raises(Unavailable, match=words):
        await device.look("ext4", read_only=False)
    assert names(node) == ["blkid"]


@pytest.mark.parametrize(
    ("program", "out", "code", "words"),
    [
        ("wipefs", "DEVICE OFFSET TYPE\nfake0 0x0 xfs\n", 0, "wipefs finds a signature: DEVICE OFFSET"),
        ("wipefs", "", 1, "wipefs failed with exit status 1"),
        ("probe", "byte 8191 is not zero", 1, "byte 8191 is not zero; .* erase it"),
        ("probe", "it is in use", 1, "it is in use"),
        ("probe", "", 3, "the look at its bytes failed with exit status 3"),
    ],
)
async def test_a_further_look_that_disagrees_forbids_the_format(
    node: FakeVolume, device: Device, program: str, out: str, code: int, words: str
) -> None:
    node.answer(program, out, code=code)
    with pytest.raises(Unavailable, match=rf"device {PATH} cannot be formatted: .*{words}"):
        await device.look("ext4", read_only=False)
    assert names(node)[-1] == program


@pytest.mark.parametrize(
    ("fs_type", "force", "command"),
    [
        ("ext4", False, "mkfs.ext4 -q -F -m0"),
        ("ext3", True, "mkfs.ext3 -q -F -m0"),
        ("xfs", False, "mkfs.xfs -q"),
        ("xfs", True, "mkfs.xfs -q -f"),
        ("btrfs", False, "mkfs.btrfs"),
    ],
)
async def test_a_device_is_formatted(
    node: FakeVolume, device: Device, fs_type: str, force: bool, command: str
) -> None:
    """A signature is overwritten only if this node has begun to write it."""
    await device.make(fs_type, force=force)
    assert node.ran == [f"{command} {PATH}"]
    node.answer(f"mkfs.{fs_type}", code=1, err="no space\n Usage: mkfs")
    with pytest.raises(Unavailable, match=r"volume pv: mkfs.* exit status 1: no space$"):
        await device.make(fs_type, force=force)


@pytest.mark.parametrize("code", [1, 2])
async def test_a_repaired_file_system_is_used(node: FakeVolume, device: Device, code: int) -> None:
    node.answer("blkid", EXT4)
    node.answer("fsck.ext4", code=code)
    assert await device.look("ext4", read_only=False) == "ext4"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "fsck does not repair it without questions: UNEXPECTED"),
        (12, "fsck does not repair"),
        (8, "status 8"),
        (-15, "exit status -15"),
    ],
)
async def test_a_damaged_file_system_is_not_mounted(
    node: FakeVolume, device: Device, code: int, words: str
) -> None:
    node.answer("blkid", EXT4)
    node.answer("fsck.ext4", "UNEXPECTED INCONSISTENCY", code=code)
    with pytest.raises(Unavailable, match=words):
        await device.look("ext4", read_only=False)


async def test_a_file_system_of_another_kind_is_checked_if_it_has_a_program(
    node: FakeVolume, device: Device
) -> None:
    node.answer("blkid", "TYPE=vfat\n")
    for code in (0, 1, 8, 123):
        node.answer("fsck", code=code)
        assert await device.look("", read_only=False) == "vfat"
    assert node.ran[1] == f"fsck -a {PATH}"
    node.answer("fsck", code=4)
    with pytest.raises(Unavailable, match="run fsck yourself"):
        await device.look("", read_only=False)
    node.ran.clear()
    node.answer("blkid", "TYPE=xfs\n")
    assert await device.look("xfs", read_only=False) == "xfs"
    assert names(node) == ["blkid"]


@pytest.mark.parametrize("path", ["", "fake0", "/dev/fake0\0", "-F", "server:/export"])
async def test_a_word_that_is_not_a_path_is_never_an_argument(node: FakeVolume, path: str) -> None:
    assert await Device(path, node).find_size() == 0
    assert node.ran == []


async def test_what_is_not_a_block_device_has_no_size(node: FakeVolume, device: Device) -> None:
    assert await device.find_size() == 1 << 30
    node.answer("blockdev", code=1, err="ioctl error")
    assert await device.find_size() == 0


def mounted(fs_type: str, *, options: str = "rw", super_options: str = "rw") -> MountPoint:
    return MountPoint(
        target="/g",
        root="/",
        device="7:0",
        fs_type=fs_type,
        source=PATH,
        options=(options,),
        super_options=(super_options,),
    )


@pytest.mark.parametrize(
    ("fs_type", "command"),
    [
        ("ext4", f"resize2fs {PATH}"),
        ("xfs", "xfs_growfs -d /g"),
        ("btrfs", "btrfs filesystem resize max /g"),
    ],
)
async def test_a_file_system_grows_to_its_device(
    node: FakeVolume, device: Device, fs_type: str, command: str
) -> None:
    assert await device.grow(mounted(fs_type), 1 << 20) == 1 << 30
    assert node.ran[1:] == [command]
    node.answer(command.split(maxsplit=1)[0], code=1, err="cannot")
    with pytest.raises(Unavailable, match="exit status 1: cannot"):
        await device.grow(mounted(fs_type), 1 << 20)


async def test_a_device_that_is_too_small_or_read_only_is_not_expanded(
    node: FakeVolume, device: Device
) -> None:
    with pytest.raises(Unavailable, match="the volume should have"):
        await device.grow(mounted("ext4"), 1 << 40)
    for entry in (mounted("ext4", options="ro"), mounted("ext4", super_options="ro")):
        with pytest.raises(Unavailable, match="mounted read-only"):
            await device.grow(entry, 1)
    with pytest.raises(Unsupported, match="file system nfs at /g cannot grow"):
        await device.grow(mounted("nfs"), 1)
    assert set(names(node)) == {"blockdev"}
