"""Devices of FlexVolume drivers are formatted only if they are blank. Real loop devices."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kubeletx_flexvolume.device import Device
from kubeletx_flexvolume.host.drivers import base_environment
from kubeletx_flexvolume.host.node import Node
from kubeletx_flexvolume.host.processes import Processes
from kubeletx_flexvolume.host.volumes import FlexVolumes

from kubeletx.api import KubeletxError, Unavailable
from tests.integration.storage.flex_drivers import LOOP, MIB, StorageNode


def fill(image: Path, offset: int, data: bytes, size: int = 16 * MIB) -> None:
    """Make an image with zeros, and with data at one place."""
    with image.open("wb") as file:
        file.truncate(size)
        file.seek(offset if offset >= 0 else size + offset)
        file.write(data)


@pytest.mark.parametrize(
    ("offset", "data", "problem"),
    [
        (0, b"x", "data that no program recognises"),
        (MIB - 1, b"x", "data that no program recognises"),
        (-1, b"x", "data that no program recognises"),
        (-MIB, os.urandom(4096), "data that no program recognises"),
        (510, b"\x55\xaa", "partition table|data that no program recognises"),
    ],
)
async def test_a_device_with_unknown_data_is_not_formatted(
    flex_node: StorageNode, flex_volumes: FlexVolumes, offset: int, data: bytes, problem: str
) -> None:
    fill(flex_node.image("data"), offset, data)
    before = flex_node.image("data").read_bytes()
    with pytest.raises(Unavailable, match=problem):
        await flex_volumes.prepare(flex_node.request("data", LOOP))
    assert flex_node.image("data").read_bytes() == before
    assert flex_node.left() == []


@pytest.mark.parametrize(
    "program",
    [
        ["mkswap"],
        ["mkfs.ext2", "-F", "-q"],
        ["sh", "-c", 'printf "label: gpt\\n,\\n" | sfdisk -q "$0"'],
        ["sh", "-c", 'printf "LUKS\\272\\276\\0\\1" | dd of="$0" conv=notrunc status=none'],
    ],
)
async def test_a_device_with_known_data_is_not_formatted(
    flex_node: StorageNode, flex_volumes: FlexVolumes, program: list[str]
) -> None:
    fill(flex_node.image("data"), 0, b"")
    await asyncio.to_thread(
        subprocess.run, [*program, str(flex_node.image("data"))], check=True, capture_output=True
    )
    before = flex_node.image("data").read_bytes()
    with pytest.raises(KubeletxError):
        await flex_volumes.prepare(flex_node.request("data", LOOP, fs_type="ext4"))
    assert flex_node.image("data").read_bytes() == before
    assert flex_node.left() == []


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Function that attaches an image to a loop device and returns its path."""
    made = []

    def attach(image: Path, *options: str) -> str:
        program = ["losetup", "--find", "--show", *options, str(image)]
        made.append(subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip())
        return made[-1]

    yield attach
    for device in made:
        subprocess.run(["losetup", "--detach", device], check=True)


async def look(tmp_path: Path, device: str) -> None:
    processes = Processes(tmp_path / "running")
    await processes.open()
    run = partial(processes.run, environment=base_environment())
    node = Node(run, asyncio.to_thread, asyncio.to_thread)
    programs = node.programs("pv", "", asyncio.get_running_loop().time() + 20)
    assert await Device(device, programs).look("ext4", read_only=False) == ""


async def test_only_a_writable_device_of_its_own_is_blank(
    tmp_path: Path, loop_device: Callable[..., str]
) -> None:
    image = tmp_path / "image"
    fill(image, 0, b"")
    await look(tmp_path, loop_device(image))
    with pytest.raises(Unavailable, match="it is read-only"):
        await look(tmp_path, loop_device(image, "--read-only"))
    fill(tmp_path / "small", 0, b"", size=MIB // 2)
    with pytest.raises(Unavailable, match="it has only 524288 bytes"):
        await look(tmp_path, loop_device(tmp_path / "small"))
    held = loop_device(tmp_path / "image", "--offset", "4096")
    descriptor = os.open(held, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(Unavailable, match="it is in use"):
            await look(tmp_path, held)
    finally:
        os.close(descriptor)


async def test_a_device_that_cannot_be_read_is_not_blank(
    tmp_path: Path, loop_device: Callable[..., str]
) -> None:
    """The image ends in the middle of the device: reads of its end fail, and blkid sees nothing there."""
    image = tmp_path / "image"
    fill(image, 0, b"")
    device = loop_device(image)
    with image.open("r+b") as file:
        file.truncate(8 * MIB)
    with pytest.raises(Unavailable, match=r"it cannot be read: |it ends early"):
        await look(tmp_path, device)
