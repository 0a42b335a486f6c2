"""Executable FlexVolume drivers with real mounts, real loop devices and real file systems."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kubeletx_flexvolume.host.volumes import FlexVolumes
from structlog.testing import capture_logs

from kubeletx.api import Unavailable
from tests.integration.storage.flex_drivers import LOOP, MIB, SECRET, TMPFS, StorageNode, grow, read, write


def mounted_type(target: str) -> str:
    found = subprocess.run(
        ["findmnt", "-n", "-o", "FSTYPE", target], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


async def test_a_tmpfs_driver_mounts_with_its_options(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    request = flex_node.request("data", TMPFS, options={"size": str(4 * MIB)})
    await flex_volumes.prepare(request)
    write(request, "one")
    assert read(request) == "one"
    assert (await flex_volumes.stats(request)).capacity_bytes == 4 * MIB
    assert flex_node.mounts() == [request.target]
    await flex_volumes.release(request)
    assert flex_node.left() == []


async def test_a_loop_device_is_formatted_once_and_keeps_its_data(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    one = flex_node.request("data", LOOP, pod="one", persistent_volume="pv-1")
    ready = await flex_volumes.prepare(one)
    assert ready.device in flex_node.devices()
    write(one, "kept")
    await flex_volumes.release(one)
    assert flex_node.left() == []
    assert flex_node.calls().count("detach") == 1
    other = flex_node.request("data", LOOP, pod="other", persistent_volume="pv-1")
    await flex_volumes.prepare(other)
    assert read(other) == "kept"
    await flex_volumes.release(other)


@pytest.mark.parametrize("fs_type", ["ext3", "ext4"])
async def test_the_file_system_is_the_one_that_is_asked_for(
    flex_node: StorageNode, flex_volumes: FlexVolumes, fs_type: str
) -> None:
    request = flex_node.request("data", LOOP, fs_type=fs_type)
    await flex_volumes.prepare(request)
    assert mounted_type(request.target) == fs_type
    await flex_volumes.release(request)


async def test_xfs_is_formatted_expanded_and_keeps_its_data(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    with flex_node.image("data").open("wb") as file:
        file.truncate(320 * MIB)  # the least size of XFS is 300 MiB
    request = flex_node.request("data", LOOP, fs_type="xfs")
    ready = await flex_volumes.prepare(request)
    write(request, "kept")
    grow(flex_node, ready.device, 400 * MIB)
    assert await flex_volumes.expand(request, 400 * MIB) == 400 * MIB
    assert os.statvfs(request.target).f_blocks * os.statvfs(request.target).f_frsize > 330 * MIB
    assert read(request) == "kept"
    await flex_volumes.release(request)


async def test_two_pods_share_a_device_until_the_last_one_ends(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    one, other = (
        flex_node.request("data", LOOP, pod=pod, persistent_volume="pv-1") for pod in ("one", "other")
    )
    await asyncio.gather(flex_volumes.prepare(one), flex_volumes.prepare(other))
    assert len(flex_node.devices()) == 1
    write(one, "shared")
    assert read(other) == "shared"
    await flex_volumes.release(one)
    assert read(other) == "shared"
    await flex_volumes.release(other)
    assert flex_node.left() == []


async def test_a_read_only_volume_cannot_be_written(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    request = flex_node.request("data", LOOP)
    await flex_volumes.prepare(request)
    await flex_volumes.release(request)
    request = flex_node.request("data", LOOP, read_only=True)
    await flex_volumes.prepare(request)
    with pytest.raises(OSError, match="Read-only"):
        write(request, "x")
    await flex_volumes.release(request)


async def test_a_secret_reaches_the_driver_and_no_error(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    good = flex_node.request("data", SECRET, secrets={"password": b"hunter2-secret"})
    await flex_volumes.prepare(good)
    write(good, "one")
    assert (flex_node.state / "data" / "file").read_text() == "one"
    await flex_volumes.release(good)
    bad = flex_node.request("data", SECRET, secrets={"password": b"wrong-password"})
    with capture_logs() as logs, pytest.raises(Unavailable, match=r"bad password \[secret\]") as error:
        await flex_volumes.prepare(bad)
    assert "wrong-password" not in f"{error.value} {logs}"
    for path in flex_node.host.state_directory.rglob("*"):
        assert not path.is_file() or b"password" not in path.read_bytes() or "volume-plugins" in path.parts
    assert flex_node.left() == []


async def test_a_volume_in_use_is_released_when_it_is_free(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    request = flex_node.request("data", LOOP)
    await flex_volumes.prepare(request)
    with (Path(request.target) / "open").open("w"), pytest.raises(Unavailable) as error:
        await flex_volumes.release(request)
    assert error.value.reason == "FailedKillPod"
    await flex_volumes.release(request)
    assert flex_node.left() == []


async def test_fifty_volumes_at_once_are_made_and_removed(
    flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    requests = [flex_node.request(f"v{number}", TMPFS) for number in range(50)]
    await asyncio.gather(*(flex_volumes.prepare(one) for one in requests))
    assert len(flex_node.mounts()) == 50
    await asyncio.gather(*(flex_volumes.release(one) for one in requests))
    assert flex_node.left() == []


@pytest.fixture
def small_disk(flex_node: StorageNode) -> Iterator[Path]:
    """File that fills the disk of the plugin's state directory, which is a small tmpfs."""
    state = flex_node.host.state_directory
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(state)], check=True)
    try:
        yield state / "fill"
    finally:
        subprocess.run(["umount", str(state)], check=True)


async def test_with_a_full_disk_volumes_are_released_and_none_is_mounted(
    small_disk: Path, flex_node: StorageNode, flex_volumes: FlexVolumes
) -> None:
    requests = flex_node.request("data", LOOP), flex_node.request("other", TMPFS)
    for one in requests:
        await flex_volumes.prepare(one)
    third = flex_node.request("third", TMPFS)
    with small_disk.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            continue
    with pytest.raises(Unavailable, match="No space left on device; free space on its disk"):
        await flex_volumes.prepare(third)
    for one in requests:
        await flex_volumes.release(one)
    assert (flex_node.devices(), flex_node.journal()) == ([], [])
    assert flex_node.mounts() == [str(flex_node.host.state_directory)]
    small_disk.unlink()
    await flex_volumes.prepare(third)
    await flex_volumes.release(third)
