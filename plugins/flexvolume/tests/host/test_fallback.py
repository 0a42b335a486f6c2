"""Formatting, mounting and expanding of devices by the node's own programs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.host import blank, fallback
from kubeletx_flexvolume.host.blank import check_blank, look_at_device
from kubeletx_flexvolume.host.fallback import GenericDevice
from kubeletx_flexvolume.host.mount_table import MountLine
from kubeletx_flexvolume.host.mounts import Mounts
from kubeletx_flexvolume.host.processes import ProcessResult
from kubeletx_flexvolume.host.threads import Threads

from kubeletx.api import Unavailable, Unsupported
from plugins.flexvolume.tests.host.flex_model import FakeNode

DEVICE = "/dev/fake0"
EMPTY = ProcessResult(2, b"", b"")
EXT4 = ProcessResult(0, b"DEVNAME=/dev/fake0\nTYPE=ext4\n", b"")
TABLE = ProcessResult(0, b"DEVNAME=/dev/fake0\nPTTYPE=gpt\n", b"")


async def direct(function: Any, *args: Any) -> Any:
    return function(*args)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node with a device that is blank, unless a test changes a result."""
    made = FakeNode(tmp_path)
    made.results["blkid"] = EMPTY
    monkeypatch.setattr(fallback, "is_block_device", lambda path: path == DEVICE)
    monkeypatch.setattr(fallback, "device_size", lambda path: 1 << 30)
    monkeypatch.setattr(blank, "_read_problem", lambda device, is_interrupted: "")
    return made


def generic(node: FakeNode) -> GenericDevice:
    threads = Threads(direct, 2, finishes=False)
    return GenericDevice(node, Mounts(node, threads, node.table), threads)


async def mount(node: FakeNode, fs_type: str = "", **changes: Any) -> list[bool]:
    """Mount the device on /g; return with what `formatting` was called."""
    noted: list[bool] = []

    async def formatting(is_running: bool) -> None:
        noted.append(is_running)

    values = {"read_only": False, "is_interrupted": False, "formatting": formatting, **changes}
    until = asyncio.get_running_loop().time() + 10
    await generic(node).mount(DEVICE, "/g", fs_type, until=until, **values)
    return noted


def programs(node: FakeNode) -> list[str]:
    return [one.split()[0] for one in node.ran]


async def test_a_blank_device_is_formatted_and_mounted(node: FakeNode) -> None:
    assert await mount(node) == [True, False]
    assert node.ran == [
        f"blkid -p -s TYPE -s PTTYPE -o export -- {DEVICE}",
        f"wipefs --no-act -- {DEVICE}",
        f"mkfs.ext4 -F -m0 {DEVICE}",
        f"mount -t ext4 -o rw -- {DEVICE} /g",
    ]


async def test_xfs_is_not_forced_over_a_signature(node: FakeNode) -> None:
    await mount(node, "xfs")
    assert f"mkfs.xfs {DEVICE}" in node.ran


async def test_a_file_system_is_checked_and_mounted(node: FakeNode) -> None:
    node.results["blkid"] = EXT4
    assert await mount(node, "ext4") == []
    assert node.ran[1:] == [f"fsck -a {DEVICE}", f"mount -t ext4 -o rw -- {DEVICE} /g"]


async def test_a_volume_that_is_read_only_is_neither_checked_nor_formatted(node: FakeNode) -> None:
    node.results["blkid"] = EXT4
    await mount(node, read_only=True)
    assert node.ran[1:] == [f"mount -t ext4 -o ro -- {DEVICE} /g"]
    node.results["blkid"] = EMPTY
    node.ran.clear()
    with pytest.raises(Unavailable, match="read-only is not formatted"):
        await mount(node, read_only=True)
    assert programs(node) == ["blkid"]


async def test_another_file_system_is_neither_mounted_nor_overwritten(node: FakeNode) -> None:
    node.results["blkid"] = EXT4
    with pytest.raises(Unavailable, match="a file system ext4, and the volume asks for fsType xfs"):
        await mount(node, "xfs")
    assert programs(node) == ["blkid"]


async def test_a_partition_table_is_data(node: FakeNode) -> None:
    node.results["blkid"] = TABLE
    with pytest.raises(Unavailable, match=r"partition table \(gpt\)"):
        await mount(node)
    assert programs(node) == ["blkid"]


@pytest.mark.parametrize(
    "result",
    [
        ProcessResult(8, b"", b"ambivalent result"),
        ProcessResult(4, b"", b"usage"),
        ProcessResult(2, b"TYPE=ext4\n", b""),
        ProcessResult(0, b"", b""),
        ProcessResult(-9, b"", b""),
    ],
)
async def test_an_unclear_answer_of_blkid_is_not_blank(node: FakeNode, result: ProcessResult) -> None:
    node.results["blkid"] = result
    with pytest.raises(Unavailable, match="blkid could not"):
        await mount(node)
    assert programs(node) == ["blkid"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (ProcessResult(0, b"DEVICE OFFSET TYPE\nfake0 0x0 xfs\n", b""), "wipefs finds a signature: DEVICE"),
        (ProcessResult(1, b"", b"cannot read"), "wipefs could not look for signatures"),
    ],
)
async def test_a_second_look_that_disagrees_forbids_the_format(
    node: FakeNode, result: ProcessResult, problem: str
) -> None:
    node.results["wipefs"] = result
    with pytest.raises(Unavailable, match=problem):
        await mount(node)
    assert programs(node) == ["blkid", "wipefs"]


async def test_content_that_no_program_knows_forbids_the_format(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blank, "_read_problem", lambda *_: "it contains data that no program recognises")
    with pytest.raises(Unavailable, match=r"not formatted, because it contains data .* erase it"):
        await mount(node)
    assert "mkfs.ext4" not in programs(node)


@pytest.mark.parametrize(("number", "words"), [(16, "it is in use"), (5, "it cannot be read")])
async def test_a_device_that_cannot_be_read_is_not_blank(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(number, "reason")

    monkeypatch.setattr(blank, "_read_problem", refuse)
    with pytest.raises(Unavailable, match=words):
        await mount(node)
    assert "mkfs.ext4" not in programs(node)


async def test_an_interrupted_format_is_known_to_the_second_look(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(blank, "_read_problem", lambda device, is_interrupted: seen.append(is_interrupted))
    await mount(node, is_interrupted=True)
    assert seen == [True]


async def test_a_format_that_fails_stays_noted(node: FakeNode) -> None:
    node.results["mkfs.ext4"] = ProcessResult(1, b"", b"no space")
    noted: list[bool] = []

    async def formatting(is_running: bool) -> None:
        noted.append(is_running)

    with pytest.raises(Unavailable, match=r"mkfs\.ext4 could not format"):
        await mount(node, formatting=formatting)
    assert noted == [True]
    assert node.mounted == []


async def test_errors_that_fsck_leaves_forbid_the_mount(node: FakeNode) -> None:
    node.results["blkid"] = EXT4
    node.results["fsck"] = ProcessResult(4, b"UNEXPECTED INCONSISTENCY", b"")
    with pytest.raises(Unavailable, match="run it by hand"):
        await mount(node)
    assert node.mounted == []
    for code in (1, 8, 127):
        node.results["fsck"] = ProcessResult(code, b"", b"")
        await mount(node)


@pytest.mark.parametrize("device", ["", "fake0", "/dev/null", "/dev/fake0\0", "-F", "server:/export"])
async def test_only_a_block_device_is_looked_at(node: FakeNode, device: str) -> None:
    with pytest.raises(Unavailable, match="no block device"):
        await generic(node).mount(
            device,
            "/g",
            "",
            read_only=False,
            is_interrupted=False,
            formatting=direct,
            until=asyncio.get_running_loop().time() + 10,
        )
    assert node.ran == []


@pytest.mark.parametrize(
    ("fs_type", "program"),
    [
        ("ext4", f"resize2fs {DEVICE}"),
        ("xfs", "xfs_growfs -d /g"),
        ("btrfs", "btrfs filesystem resize max /g"),
    ],
)
async def test_a_file_system_grows_to_its_device(node: FakeNode, fs_type: str, program: str) -> None:
    until = asyncio.get_running_loop().time() + 10
    mounted = MountLine("/g", fs_type, DEVICE, False)
    assert await generic(node).expand(mounted, DEVICE, 1 << 20, until=until) == 1 << 30
    assert node.ran == [program]


async def test_a_device_that_is_too_small_or_read_only_is_not_expanded(node: FakeNode) -> None:
    until = asyncio.get_running_loop().time() + 10
    with pytest.raises(Unavailable, match="the volume should have"):
        await generic(node).expand(MountLine("/g", "ext4", DEVICE, False), "", 1 << 40, until=until)
    with pytest.raises(Unavailable, match="mounted read-only"):
        await generic(node).expand(MountLine("/g", "ext4", DEVICE, True), "", 1, until=until)
    with pytest.raises(Unsupported):
        await generic(node).expand(MountLine("/g", "nfs", DEVICE, False), "", 1, until=until)
    assert node.ran == []


async def test_a_regular_file_is_never_blank(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    file = tmp_path / "file"
    file.write_bytes(bytes(4 << 20))
    threads = Threads(direct, 1, finishes=False)
    until = asyncio.get_running_loop().time() + 10
    with pytest.raises(Unavailable, match="no block device"):
        await check_blank(node, threads, str(file), until=until)
    with pytest.raises(Unavailable, match="cannot be read"):
        await check_blank(node, threads, str(tmp_path / "none"), until=until)


async def test_what_blkid_prints_is_read(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.results["blkid"] = EXT4
    found = await look_at_device(node, DEVICE, until=asyncio.get_running_loop().time() + 1)
    assert (found.fs_type, found.partitions, found.is_empty) == ("ext4", "", False)
