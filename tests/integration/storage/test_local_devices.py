"""A local persistent volume with volumeMode Filesystem on a block device: loop devices, formatted only when blank."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from kubeletx.api import ClusterVolume, PodUid, TimedOut, Unavailable
from kubeletx.linux.locks import LockHeld, hold_lock
from kubeletx.linux.programs import ProgramResult, run_blocking
from kubeletx.volumes import VolumePreparer, local_devices
from kubeletx.volumes.mounting import LinuxMounter
from kubeletx.volumes.preparer import PREPARE_SECONDS
from kubeletx_testing.lab.disk import LoopDevice
from tests.unit.volumes.volume_doubles import FakeCluster, make_pod, make_preparer

T = TypeVar("T")

MIB = 1 << 20
GROUP = 4321


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(32 * MIB)
    return path


@pytest.fixture
def device(image: Path) -> Iterator[Path]:
    with LoopDevice(image) as loop:
        yield loop.path


@pytest.fixture
def preparer(tmp_path: Path) -> VolumePreparer:
    return make_preparer(tmp_path / "root", mounter=LinuxMounter())


def pod(name: str, **claim: Any) -> Any:
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data", **claim}}
    return make_pod({"volumes": [volume], "securityContext": {"fsGroup": GROUP}}, uid=name)


def run(*command: object) -> str:
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def prepare(
    preparer: VolumePreparer,
    made: Any,
    device: Path,
    *,
    deadline_seconds: float = PREPARE_SECONDS,
    **fields: Any,
) -> Path:
    cluster = FakeCluster()
    cluster.claims["data"] = ClusterVolume(name="pv", kind="local", path=str(device), **fields)
    prepared = await preparer.prepare(made, cluster, deadline_seconds=deadline_seconds)
    return Path(prepared.volumes["d"].source)


def file_system(path: Path) -> str:
    return run("findmnt", "--noheadings", "--output", "FSTYPE", "--mountpoint", path)


@pytest.mark.parametrize("fs_type", ["", "xfs"])
async def test_a_blank_device_is_formatted_once_and_shared_by_the_nodes_pods(
    preparer: VolumePreparer, image: Path, device: Path, fs_type: str
) -> None:
    if fs_type == "xfs":  # its smallest size
        with image.open("r+b") as file:
            file.truncate(300 * MIB)
        run("losetup", "--set-capacity", device)
    first = await prepare(preparer, pod("one"), device, fs_type=fs_type)
    assert file_system(first) == (fs_type or "ext4")
    assert first.stat().st_gid == GROUP
    (first / "data").write_text("kept")
    second = await prepare(preparer, pod("two"), device, fs_type=fs_type)
    assert (second / "data").read_text() == "kept"
    assert await prepare(preparer, pod("two"), device, fs_type=fs_type) == second
    for name in ("one", "two"):
        await preparer.release(PodUid(name))
    assert not first.exists()
    again = await prepare(preparer, pod("three", readOnly=True), device)
    assert (again / "data").read_text() == "kept"
    with pytest.raises(OSError, match="Read-only"):
        (again / "data").write_text("x")
    await preparer.release(PodUid("three"))


async def test_pods_that_start_together_format_a_device_once(tmp_path: Path, device: Path) -> None:
    preparer = make_preparer(tmp_path / "root", mounter=LinuxMounter(), blocking=asyncio.to_thread)
    with capture_logs() as lines:
        targets = await asyncio.gather(*(prepare(preparer, pod(name), device) for name in ("one", "two")))
    assert [file_system(one) for one in targets] == ["ext4", "ext4"]
    assert [one["event"] for one in lines].count("Formatted a device") == 1
    for name in ("one", "two"):
        await preparer.release(PodUid(name))


async def test_a_format_that_has_not_ended_keeps_the_device_locked(
    preparer: VolumePreparer, tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that outlives mkfs stands for a mkfs that hangs in the kernel."""
    program = tmp_path / "bin" / "mkfs.ext4"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $! >{tmp_path}/pid\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(Unavailable, match="could not format"):
        await prepare(preparer, pod("one"), device)
    pid = int((tmp_path / "pid").read_text())
    try:
        with pytest.raises(LockHeld, match=f"is locked by PID {pid} "), hold_lock(device):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
    with hold_lock(device, waits=True):
        pass
    await preparer.release(PodUid("one"))


async def test_a_format_is_not_stopped_at_the_deadline_of_its_pod(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_late(command: Sequence[str], *, seconds: float | None, **options: Any) -> ProgramResult:
        is_format = command[0].startswith("mkfs")
        return run_blocking(command, seconds=0.0 if is_format and seconds else seconds, **options)

    calls: list[asyncio.Task[Any]] = []

    async def blocking(function: Callable[..., T], /, *args: Any) -> T:
        calls.append(asyncio.create_task(asyncio.to_thread(function, *args)))
        return await asyncio.shield(calls[-1])

    program, pipe = tmp_path / "bin" / "mkfs.ext4", tmp_path / "pipe"
    program.parent.mkdir()
    os.mkfifo(pipe)
    program.write_text(f'#!/bin/sh\nread go <{pipe}\nexec {shutil.which("mkfs.ext4")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(local_devices, "run_blocking", run_late)
    preparer = make_preparer(tmp_path / "root", mounter=LinuxMounter(), blocking=blocking)
    with pytest.raises(TimedOut):
        await prepare(preparer, pod("one"), device, deadline_seconds=0.5)
    await asyncio.to_thread(pipe.write_text, "go\n")
    await asyncio.wait(calls)
    assert file_system(await prepare(preparer, pod("one"), device)) == "ext4"
    await preparer.release(PodUid("one"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({0: b"data of a database"}, "contains data that no program recognises"),
        ({32 * MIB - 9: b"at its end"}, "contains data that no program recognises"),
        (
            {510: b"\x55\xaa", 446: bytes([0, 0, 2, 0, 0x83, 0, 8, 0, 1, 0, 0, 0, 1, 0, 0, 0])},
            "partition table",
        ),
    ],
)
async def test_a_device_with_data_is_left_as_it_is(
    preparer: VolumePreparer, image: Path, content: dict[int, bytes], problem: str
) -> None:
    with image.open("r+b") as file:
        for offset, data in content.items():
            file.seek(offset)
            file.write(data)
        file.truncate(32 * MIB)
    before = image.read_bytes()
    with LoopDevice(image) as loop:
        with pytest.raises(Unavailable, match=problem) as caught:
            await prepare(preparer, pod("one"), loop.path)
        assert caught.value.reason == "FailedMount"
        await preparer.release(PodUid("one"))
    assert image.read_bytes() == before


async def test_what_else_is_not_formatted(preparer: VolumePreparer, image: Path, device: Path) -> None:
    with pytest.raises(Unavailable, match="not formatted for a claim that is read-only"):
        await prepare(preparer, pod("one", readOnly=True), device)
    run("blockdev", "--setro", device)
    with pytest.raises(Unavailable, match="because it is read-only"):
        await prepare(preparer, pod("one"), device)
    run("blockdev", "--setrw", device)
    with pytest.raises(Unavailable, match="is not the name of a file system"):
        await prepare(preparer, pod("one"), device, fs_type="../sh")
    with image.open("r+b") as file:
        file.truncate(MIB // 2)
    run("losetup", "--set-capacity", device)
    with pytest.raises(Unavailable, match="it has only 524288 bytes"):
        await prepare(preparer, pod("one"), device)
    assert not any(image.read_bytes())


async def test_a_file_system_of_another_type_is_refused(preparer: VolumePreparer, device: Path) -> None:
    run("mkfs.ext4", "-q", device)
    with pytest.raises(Unavailable, match="it contains ext4, and fsType is xfs; correct fsType"):
        await prepare(preparer, pod("one"), device, fs_type="xfs")
