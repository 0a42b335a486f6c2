"""Executable FlexVolume drivers with real mounts, real loop devices and real file systems."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubeletx_flexvolume.host.blank import check_blank, look_at_device
from kubeletx_flexvolume.host.drivers import base_environment
from kubeletx_flexvolume.host.processes import Processes
from kubeletx_flexvolume.host.programs import NodePrograms
from kubeletx_flexvolume.host.threads import Threads
from kubeletx_flexvolume.host.volumes import FlexVolumes
from structlog.testing import capture_logs

from kubeletx.api import KubeletxError, Unavailable, VolumeDriver, VolumeRequest
from kubeletx.testing.contract.volume_drivers import VolumeDriverContract
from tests.integration.storage.flex_drivers import LOOP, SECRET, TMPFS, StorageNode

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
MIB = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StorageNode]:
    """A node with three drivers; the test fails if it leaves a mount or a device."""
    made = StorageNode(tmp_path)
    made.install()
    try:
        yield made
        left = [*made.mounts(), *made.devices()]
    finally:
        made.clean_up()
    assert left == []


@pytest_asyncio.fixture
async def volumes(node: StorageNode) -> AsyncIterator[FlexVolumes]:
    """An open volume driver of the node."""
    made = node.make()
    await made.open()
    yield made
    await made.close()


def mounted_type(target: str) -> str:
    found = subprocess.run(
        ["findmnt", "-n", "-o", "FSTYPE", target], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def write(request: VolumeRequest, text: str) -> None:
    (Path(request.target) / "file").write_text(text)


def read(request: VolumeRequest) -> str:
    return (Path(request.target) / "file").read_text()


async def test_a_tmpfs_driver_mounts_with_its_options(node: StorageNode, volumes: FlexVolumes) -> None:
    request = node.request("data", TMPFS, options={"size": str(4 * MIB)})
    await volumes.prepare(request)
    write(request, "one")
    assert read(request) == "one"
    assert (await volumes.stats(request)).capacity_bytes == 4 * MIB
    assert node.mounts() == [request.target]
    await volumes.release(request)
    assert node.left() == []


async def test_a_loop_device_is_formatted_once_and_keeps_its_data(
    node: StorageNode, volumes: FlexVolumes
) -> None:
    one = node.request("data", LOOP, pod="one", persistent_volume="pv-1")
    ready = await volumes.prepare(one)
    assert ready.device in node.devices()
    write(one, "kept")
    await volumes.release(one)
    assert node.left() == []
    assert node.calls().count("detach") == 1
    other = node.request("data", LOOP, pod="other", persistent_volume="pv-1")
    await volumes.prepare(other)
    assert read(other) == "kept"
    await volumes.release(other)


@pytest.mark.parametrize("fs_type", ["ext3", "ext4"])
async def test_the_file_system_is_the_one_that_is_asked_for(
    node: StorageNode, volumes: FlexVolumes, fs_type: str
) -> None:
    request = node.request("data", LOOP, fs_type=fs_type)
    await volumes.prepare(request)
    assert mounted_type(request.target) == fs_type
    await volumes.release(request)


async def test_xfs_is_formatted_expanded_and_keeps_its_data(node: StorageNode, volumes: FlexVolumes) -> None:
    with node.image("data").open("wb") as file:
        file.truncate(320 * MIB)  # the least size of XFS is 300 MiB
    request = node.request("data", LOOP, fs_type="xfs")
    ready = await volumes.prepare(request)
    write(request, "kept")
    grow(node, ready.device, 400 * MIB)
    assert await volumes.expand(request, 400 * MIB) == 400 * MIB
    assert os.statvfs(request.target).f_blocks * os.statvfs(request.target).f_frsize > 330 * MIB
    assert read(request) == "kept"
    await volumes.release(request)


async def test_two_pods_share_a_device_until_the_last_one_ends(
    node: StorageNode, volumes: FlexVolumes
) -> None:
    one, other = (node.request("data", LOOP, pod=pod, persistent_volume="pv-1") for pod in ("one", "other"))
    await asyncio.gather(volumes.prepare(one), volumes.prepare(other))
    assert len(node.devices()) == 1
    write(one, "shared")
    assert read(other) == "shared"
    await volumes.release(one)
    assert read(other) == "shared"
    await volumes.release(other)
    assert node.left() == []


async def test_a_read_only_volume_cannot_be_written(node: StorageNode, volumes: FlexVolumes) -> None:
    request = node.request("data", LOOP)
    await volumes.prepare(request)
    await volumes.release(request)
    request = node.request("data", LOOP, read_only=True)
    await volumes.prepare(request)
    with pytest.raises(OSError, match="Read-only"):
        write(request, "x")
    await volumes.release(request)


async def test_a_secret_reaches_the_driver_and_no_error(node: StorageNode, volumes: FlexVolumes) -> None:
    good = node.request("data", SECRET, secrets={"password": b"hunter2-secret"})
    await volumes.prepare(good)
    write(good, "one")
    assert (node.state / "data" / "file").read_text() == "one"
    await volumes.release(good)
    bad = node.request("data", SECRET, secrets={"password": b"wrong-password"})
    with capture_logs() as logs, pytest.raises(Unavailable, match=r"bad password \[secret\]") as error:
        await volumes.prepare(bad)
    assert "wrong-password" not in f"{error.value} {logs}"
    for path in node.host.state_directory.rglob("*"):
        assert not path.is_file() or b"password" not in path.read_bytes() or "volume-plugins" in path.parts
    assert node.left() == []


async def test_a_volume_in_use_is_released_when_it_is_free(node: StorageNode, volumes: FlexVolumes) -> None:
    request = node.request("data", LOOP)
    await volumes.prepare(request)
    with (Path(request.target) / "open").open("w"), pytest.raises(Unavailable) as error:
        await volumes.release(request)
    assert error.value.reason == "FailedKillPod"
    await volumes.release(request)
    assert node.left() == []


async def test_fifty_volumes_at_once_are_made_and_removed(node: StorageNode, volumes: FlexVolumes) -> None:
    requests = [node.request(f"v{number}", TMPFS) for number in range(50)]
    await asyncio.gather(*(volumes.prepare(one) for one in requests))
    assert len(node.mounts()) == 50
    await asyncio.gather(*(volumes.release(one) for one in requests))
    assert node.left() == []


# --- formatting ---


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
    node: StorageNode, volumes: FlexVolumes, offset: int, data: bytes, problem: str
) -> None:
    fill(node.image("data"), offset, data)
    before = node.image("data").read_bytes()
    with pytest.raises(Unavailable, match=problem):
        await volumes.prepare(node.request("data", LOOP))
    assert node.image("data").read_bytes() == before
    assert node.left() == []


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
    node: StorageNode, volumes: FlexVolumes, program: list[str]
) -> None:
    fill(node.image("data"), 0, b"")
    await asyncio.to_thread(
        subprocess.run, [*program, str(node.image("data"))], check=True, capture_output=True
    )
    before = node.image("data").read_bytes()
    with pytest.raises(KubeletxError):
        await volumes.prepare(node.request("data", LOOP, fs_type="ext4"))
    assert node.image("data").read_bytes() == before
    assert node.left() == []


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


async def second_look(tmp_path: Path, device: str) -> None:
    async def blocking(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(function, *args)

    processes = Processes(tmp_path / "running")
    await processes.open()
    programs = NodePrograms(processes, base_environment())
    until = asyncio.get_running_loop().time() + 20
    assert (await look_at_device(programs, device, until=until)).is_empty
    await check_blank(programs, Threads(blocking, 2, finishes=False), device, until=until)


async def test_only_a_writable_device_of_its_own_is_blank(
    tmp_path: Path, loop_device: Callable[..., str]
) -> None:
    image = tmp_path / "image"
    fill(image, 0, b"")
    await second_look(tmp_path, loop_device(image))
    with pytest.raises(Unavailable, match="it is read-only"):
        await second_look(tmp_path, loop_device(image, "--read-only"))
    fill(tmp_path / "small", 0, b"", size=MIB // 2)
    with pytest.raises(Unavailable, match="it has only 524288 bytes"):
        await second_look(tmp_path, loop_device(tmp_path / "small"))
    held = loop_device(tmp_path / "image", "--offset", "4096")
    descriptor = os.open(held, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(Unavailable, match="it is in use"):
            await second_look(tmp_path, held)
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
        await second_look(tmp_path, device)


# --- crashes ---

STEPS = [("prepare", number, when) for number in range(1, 9) for when in ("before", "after")] + [
    ("release", number, when) for number in range(1, 5) for when in ("before", "after")
]


@pytest.mark.parametrize(("method", "number", "when"), STEPS)
async def test_an_agent_killed_at_any_write_of_the_journal_leaves_nothing_after_the_release(
    node: StorageNode, method: str, number: int, when: str
) -> None:
    assert await killed(node, method, number, when), "the method writes the journal less often; correct STEPS"
    volumes = node.make()
    await volumes.open()
    try:
        request = node.request("data", LOOP, persistent_volume="pv-1")
        await volumes.release(request)
        assert [one for one in node.left() if one not in node.journal()] == []
        for name in node.journal():  # kept without uses, only after an interrupted format
            assert name == "pv-1"
        request = node.request("data", LOOP, persistent_volume="pv-1")
        await volumes.prepare(request)
        if method == "release":
            assert read(request) == "kept"
        await volumes.release(request)
        assert node.left() == []
    finally:
        await volumes.close()


async def test_the_steps_of_the_crash_test_are_all_steps(node: StorageNode) -> None:
    assert not await killed(node, "release", 5, "before")
    assert not await killed(node, "prepare", 9, "before")
    volumes = node.make()
    await volumes.open()
    await volumes.release(node.request("data", LOOP, persistent_volume="pv-1"))
    await volumes.close()


async def killed(node: StorageNode, method: str, number: int, when: str) -> bool:
    """Run `killed_agent`; return True if it killed itself, False if it came to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.storage.killed_agent",
        str(node.directory),
        method,
        str(number),
        when,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode in {0, -9}, output.decode()
    return process.returncode == -9


# --- the contract suite ---


def grow(node: StorageNode, device: str, size_bytes: int) -> None:
    """Make the image of a device larger, and the device with it."""
    backing = Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
    assert Path(backing).parent == node.state
    os.truncate(backing, size_bytes)
    subprocess.run(["losetup", "--set-capacity", device], check=True)


class RealContract(VolumeDriverContract):
    """The suite with one of the drivers."""

    driver = ""

    @pytest.fixture
    def real_node(self, tmp_path: Path) -> Iterator[StorageNode]:
        (tmp_path / "storage").mkdir()
        made = StorageNode(tmp_path / "storage")
        made.install()
        yield made
        made.clean_up()

    @pytest.fixture
    def make_driver(self, real_node: StorageNode) -> Callable[[], VolumeDriver]:
        return real_node.make

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        return {"source": "flexVolume", "driver": self.driver}

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"kubernetes.io/fsType": "ext4"}, {"size": 1})


class TestTmpfsDriver(RealContract):
    driver = TMPFS

    async def test_a_volume_is_expanded_and_keeps_its_data(self) -> None:  # type: ignore[override]
        """Not applicable: the driver supports neither expandvolume nor expandfs, and a tmpfs has no device."""


class TestLoopDriver(RealContract):
    driver = LOOP
    keeps_data = True
    shared_by_pods = True

    @pytest.fixture
    def grow(self, real_node: StorageNode) -> Callable[[VolumeRequest, int], None]:
        return lambda request, size_bytes: grow(real_node, real_node.devices()[0], size_bytes)


async def test_the_time_of_a_mount_is_close_to_that_of_the_programs_by_hand(
    node: StorageNode, volumes: FlexVolumes, record_property: Callable[[str, object], None]
) -> None:
    """Measured for the report; the limit is wide, since other tests may run on the machine."""
    request = node.request("data", LOOP)
    await volumes.prepare(request)
    await volumes.release(request)
    request = node.request("data", LOOP)
    began = time.monotonic()
    await volumes.prepare(request)
    mounted = time.monotonic()
    await volumes.release(request)
    record_property("mount_seconds", mounted - began)
    record_property("unmount_seconds", time.monotonic() - mounted)
    assert time.monotonic() - began < 10
