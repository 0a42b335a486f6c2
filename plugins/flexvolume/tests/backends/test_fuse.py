"""Backend fuse: commands of qemu-storage-daemon(1), and what is left of a daemon. Real daemons are in the integration tests."""

from __future__ import annotations

import fcntl
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends import fuse
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.fuse import FuseBackend
from kubeletx_flexvolume.backends.loop_devices import LoopDevices
from kubeletx_flexvolume.backends.pools import Pools
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.linux.mounts import MountPoint
from kubeletx.testing import FakeClock
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import BOOT, MIB, SysLoop, holder, mount, volume
from plugins.flexvolume.tests.fake_programs import FakePrograms

VOLUME = volume("fuse", size_bytes=MIB)
DEVICE = AttachedSource(type=SourceType.DEVICE, source="/dev/loop3")


SERVE = """\
import os, signal, sys
def end(*_):
    open(sys.argv[2], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print(flush=True)
signal.pause()
"""
Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the daemon of an export, which makes the file ``flushed`` when it gets SIGTERM."""
    made = []

    def run(export: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-IS", "-c", SERVE, export, str(tmp_path / "flushed")]
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE)
        made.append(daemon)
        assert daemon.stdout is not None
        daemon.stdout.readline()
        Path(export).with_name("daemon.pid").write_text(f"{daemon.pid}")
        return daemon

    yield run
    for one in made:
        one.kill()
        one.communicate()


@pytest.fixture
def system(tmp_path: Path) -> SysLoop:
    return SysLoop(tmp_path / "block")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "fuse"


@pytest.fixture
def table() -> list[MountPoint]:
    """Mounts of the agent."""
    return []


@pytest.fixture
def backend(
    pools: Pools, commands: Commands, system: SysLoop, state: Path, table: list[MountPoint]
) -> FuseBackend:
    devices = LoopDevices(commands, FakeClock(), system.directory)
    return FuseBackend(
        pools, devices, commands, at_once, directory=state, boot_id=BOOT, table=lambda: tuple(table)
    )


@pytest.fixture
def attached(backend: FuseBackend, programs: FakePrograms, system: SysLoop, state: Path) -> str:
    """Let the programs succeed, and return the path of the export."""
    export = str(state / "pv-1" / ".pv-1")
    programs.answer("qemu-storage-daemon")
    programs.answer("losetup.--find", "/dev/loop3\n", then=system.adding(export))
    programs.answer("losetup.--detach", then=system.removing())
    return export


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_recorded_commands_of_an_attachment(
    backend: FuseBackend, programs: FakePrograms, attached: str, pool: Path, read_only: bool
) -> None:
    assert await backend.attach(VOLUME, read_only=read_only, secrets={}) == DEVICE
    daemon, loop = programs.calls
    words = shlex.split(daemon.replace('"', '\\"').replace(", ", ",").replace(": ", ":"))
    assert words[:4] == [
        "qemu-storage-daemon",
        "--daemonize",
        "--pidfile",
        str(Path(attached).with_name("daemon.pid")),
    ]
    file, disk = (json.loads(words[at]) for at in (5, 7))
    assert (file["filename"], file["read-only"]) == (f"{pool}/data", read_only)
    assert (disk["driver"], disk["file"], disk["read-only"]) == ("raw", "file", read_only)
    served = json.loads(words[9])
    assert (served["type"], served["mountpoint"], served["writable"]) == ("fuse", attached, not read_only)
    option = " --read-only" if read_only else ""
    assert loop == f"losetup --find --show{option} -- {attached}"


async def test_files_of_an_export_are_private_and_removed_with_it(
    backend: FuseBackend, attached: str, state: Path, pool: Path, start: Start, tmp_path: Path
) -> None:
    await backend.attach(VOLUME, read_only=False, secrets={})
    start(attached)
    assert await backend.find(VOLUME) == DEVICE
    directory = state / "pv-1"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / ".pv-1").stat().st_mode & 0o777 == 0o600
    assert (directory / "source").read_text() == f"{pool}/data"
    await backend.detach(VOLUME)
    assert (tmp_path / "flushed").exists()
    assert not directory.exists()
    assert await backend.find(VOLUME) is None
    await backend.detach(VOLUME)


async def test_a_served_volume_is_not_served_again(
    backend: FuseBackend, programs: FakePrograms, attached: str, start: Start
) -> None:
    await backend.attach(VOLUME, read_only=False, secrets={})
    start(attached)
    programs.forget()
    assert await backend.attach(VOLUME, read_only=False, secrets={}) == DEVICE
    assert programs.calls == []


async def test_what_an_ended_daemon_has_left_is_removed_before_another_one_starts(
    backend: FuseBackend, programs: FakePrograms, attached: str, table: list[MountPoint]
) -> None:
    await backend.attach(VOLUME, read_only=False, secrets={})
    table.append(mount("/dev/fuse", target=attached, fs_type="fuse"))

    programs.forget()
    programs.answer("umount", code=1, err="umount: busy")
    with pytest.raises(Unavailable, match=r"volume pv-1: umount .* busy"):
        await backend.attach(VOLUME, read_only=False, secrets={})
    assert programs.calls == ["losetup --detach /dev/loop3", f"umount -c -l -- {attached}"]


async def test_an_ended_daemon_is_reported_by_a_search(backend: FuseBackend, attached: str) -> None:
    await backend.attach(VOLUME, read_only=False, secrets={})
    with pytest.raises(Unavailable, match="qemu-storage-daemon of /dev/loop3 has ended"):
        await backend.find(VOLUME)


async def test_a_forced_detach_kills_the_daemon_before_the_device_goes(
    backend: FuseBackend, programs: FakePrograms, attached: str, start: Start, tmp_path: Path
) -> None:
    """A device whose daemon hangs keeps its users in the kernel."""
    await backend.attach(VOLUME, read_only=False, secrets={})
    daemon = start(attached)
    programs.answer("losetup.--detach", code=1, err="hangs")
    with pytest.raises(Unavailable, match="hangs"):
        await backend.detach(VOLUME, force=True)
    assert daemon.wait(60) in (-signal.SIGKILL, 0)  # 0: it was reaped already
    assert not (tmp_path / "flushed").exists()


async def test_a_daemon_that_survives_sigkill_is_named(
    backend: FuseBackend, attached: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.attach(VOLUME, read_only=False, secrets={})
    monkeypatch.setattr(fuse, "end_daemon", lambda *_, **__: False)  # as one that the kernel holds
    (state / "pv-1" / "daemon.pid").write_text("77")
    with pytest.raises(Unavailable, match="PID 77, does not end after SIGKILL"):
        await backend.detach(VOLUME)
    assert (state / "pv-1").exists()


async def test_a_daemon_that_does_not_start_is_an_error(
    backend: FuseBackend, programs: FakePrograms, attached: str
) -> None:
    programs.answer("qemu-storage-daemon", code=1, err="Could not open image")
    with pytest.raises(Unavailable, match=r"volume pv-1: qemu-storage-daemon .*Could not open image"):
        await backend.attach(VOLUME, read_only=False, secrets={})
    assert len(programs.calls) == 1


@pytest.fixture
def locked(pool: Path) -> Iterator[None]:
    """The image is locked by a process, as qemu locks what it serves."""
    with (pool / "data").open("wb") as file:
        file.truncate(MIB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.mark.usefixtures("locked")
async def test_an_image_that_another_process_serves_is_not_served_for_writing(
    backend: FuseBackend, programs: FakePrograms, attached: str
) -> None:
    with pytest.raises(Unavailable, match="another process of this machine serves"):
        await backend.attach(VOLUME, read_only=False, secrets={})
    assert programs.calls == []
    assert await backend.attach(VOLUME, read_only=True, secrets={}) == DEVICE


async def test_a_holder_is_fenced_only_if_no_process_serves_the_image(backend: FuseBackend) -> None:
    assert (await backend.fence(VOLUME, holder())).why == "no process of this machine serves its image"
    assert (await backend.fence(VOLUME, holder())).fenced
    assert "under another kernel" in (await backend.fence(VOLUME, holder(boot_id="other"))).why
    assert not (await backend.fence(VOLUME, holder(boot_id="other"))).fenced
    result = await backend.fence(volume("fuse", pool="shared"), holder())
    assert (result.fenced, result.why) == (False, "other machines reach pool shared, too")


@pytest.mark.usefixtures("locked")
async def test_a_holder_whose_image_is_served_is_not_fenced(backend: FuseBackend) -> None:
    result = await backend.fence(VOLUME, holder())
    assert (result.fenced, result.why) == (False, "a process of this machine serves its image")


async def test_a_mounted_export_is_recognized(backend: FuseBackend, attached: str, state: Path) -> None:
    assert backend.identify("pv-1", mount()) is None
    await backend.attach(VOLUME, read_only=False, secrets={})
    assert backend.identify("pv-1", mount()) == volume("fuse")
    assert backend.identify("pv-2", mount()) is None
    (state / "pv-1" / "source").write_text("/elsewhere/data")
    assert backend.identify("pv-1", mount()) is None
    (state / "pv-1" / "source").unlink()
    assert backend.identify("pv-1", mount()) is None


def test_options_are_those_of_a_pool(backend: FuseBackend) -> None:
    with pytest.raises(InvalidConfig):
        backend.check(volume("fuse", image="../x"))
