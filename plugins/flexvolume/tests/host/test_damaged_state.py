"""The host's own files and directories are damaged, of a newer version, unreadable, or their disk is full."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.host.discovery import PAUSE_SECONDS, Discovery
from kubeletx_flexvolume.host.processes import Processes
from kubeletx_flexvolume.host.status import FILE_NAME
from structlog.testing import capture_logs

from kubeletx.api import InvalidPod, Unavailable
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.host.flex_model import FixedHost, FlexNode, failure, says


def entry_files(flex: FlexNode) -> list[Path]:
    return sorted((flex.host.state_directory / "volumes").glob("*.json"))


async def prepared(flex: FlexNode, **fields: Any) -> Path:
    """Prepare volume data and return the file of its entry."""
    await (await flex.open()).prepare(flex.request(**fields))
    (path,) = entry_files(flex)
    return path


# --- entries of the journal ---


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\0" * 100, b'{"volume": 1}', b"\xff"])
async def test_a_damaged_entry_is_set_aside_and_its_volume_released_by_the_mount_table(
    flex: FlexNode, content: bytes
) -> None:
    flex.install_attaching()
    path = await prepared(flex)
    path.write_bytes(content)
    after = await flex.open()
    await after.release(flex.request())
    assert flex.node.mounted == []
    assert flex.commands()[-1] == "detach"
    assert path.with_name(f"{path.name}.damaged").exists()


async def test_an_entry_under_the_name_of_another_is_set_aside(flex: FlexNode) -> None:
    flex.install_plain()
    path = await prepared(flex)
    other = path.with_name("0" * 40 + ".json")
    other.write_bytes(path.read_bytes())
    await (await flex.open()).release(flex.request())
    assert flex.journal() == []
    assert other.with_name(f"{other.name}.damaged").exists()


async def test_an_entry_that_is_a_directory_affects_no_volume(flex: FlexNode) -> None:
    flex.install_plain()
    path = await prepared(flex)
    (path.parent / ("1" * 40 + ".json")).mkdir()
    after = await flex.open()
    await after.release(flex.request())
    assert flex.journal() == []


@pytest.mark.parametrize("attach", [False, True])
async def test_an_entry_of_a_newer_version_is_kept_and_blocks_only_its_volume(
    flex: FlexNode, attach: bool
) -> None:
    (flex.install_attaching if attach else flex.install_plain)()
    path = await prepared(flex)
    text = json.dumps({**json.loads(path.read_text()), "version": 2, "stage": "of another kind"})
    path.write_text(text)
    after = await flex.open()
    for call in (after.prepare, after.release):
        with pytest.raises(Unavailable, match=r"has version 2.*reads versions up to 1; install the newer"):
            await call(flex.request())
    other = flex.request("other")
    await after.prepare(other)
    await after.release(other)
    assert path.read_text() == text


async def test_an_entry_that_cannot_be_read_is_read_again_when_it_is_needed(flex: FlexNode) -> None:
    flex.install_plain()
    path = await prepared(flex)
    flex.entries.unreadable = path.stem
    after = await flex.open()
    with pytest.raises(Unavailable, match=r"json cannot be read: Input/output error") as error:
        await after.release(flex.request())
    assert error.value.reason == "FailedKillPod"
    await after.prepare(flex.request("other"))
    flex.entries.unreadable = ""
    await after.release(flex.request())
    assert flex.commands() == ["mount", "mount", "unmount"]


# --- a full disk ---


async def test_no_volume_is_mounted_that_cannot_be_recorded(flex: FlexNode) -> None:
    flex.install_plain()
    volumes = await flex.open()
    flex.entries.is_full = True
    with pytest.raises(Unavailable, match=r"volumes/\w+\.json cannot be written: No space left.*free space"):
        await volumes.prepare(flex.request())
    assert flex.commands() == []
    flex.entries.is_full = False
    await volumes.prepare(flex.request())
    await volumes.release(flex.request())


@pytest.mark.parametrize("attach", [False, True])
async def test_a_volume_is_released_though_the_disk_is_full(flex: FlexNode, attach: bool) -> None:
    (flex.install_attaching if attach else flex.install_plain)()
    await prepared(flex)
    after = await flex.open()
    flex.entries.is_full = True
    await after.release(flex.request())
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_with_a_full_disk_a_device_is_kept_until_the_other_pod_ends(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one, other = (flex.request(pod=pod, persistent_volume="pv-1") for pod in ("one", "other"))
    await volumes.prepare(one)
    await volumes.prepare(other)
    flex.entries.is_full = True
    with pytest.raises(Unavailable, match="free space"):  # else a restarted agent would wait for this pod
        await volumes.release(one)
    flex.entries.is_full = False
    await volumes.release(one)
    assert flex.node.mounted == [str(flex.global_directory("pv-1")), other.target]
    await (await flex.open()).release(other)
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_program_runs_without_a_record_that_cannot_be_written(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "running")
    await processes.open()
    (tmp_path / "running").rmdir()
    (tmp_path / "running").symlink_to("nowhere")
    with capture_logs() as logs:
        for _ in range(2):
            found = await processes.run(
                ("/bin/sh", "-c", "echo out"), environment={"PATH": os.environ["PATH"]}
            )
            assert found.stdout == b"out\n"
    assert [one["event"] for one in logs] == ["Failed to record a running program"]


async def test_the_status_of_drivers_is_written_again_when_it_can_be(flex: FlexNode) -> None:
    path = flex.host.state_directory / FILE_NAME
    (path.parent / f".{FILE_NAME}.new/full").mkdir(parents=True)
    flex.install_plain()
    with capture_logs() as logs:
        volumes = await flex.open()
        await until(lambda: any("Failed to write the status" in one["event"] for one in logs))
        await volumes.prepare(flex.request())
    assert len([one for one in logs if "Failed to write the status" in one["event"]]) == 1
    shutil.rmtree(path.parent / f".{FILE_NAME}.new")
    await volumes.prepare(flex.request("second"))
    await until(path.exists)


# --- the directory of drivers ---


async def test_a_directory_of_drivers_that_cannot_be_read_loses_no_driver(flex: FlexNode) -> None:
    host = FixedHost(flex.host.state_directory)
    flex.host, host.directory = host, flex.plugins
    path = flex.install_plain()
    volumes = await flex.open()
    await volumes.prepare(flex.request())
    readable, host.directory = host.directory, flex.directory / "loop"
    host.directory.symlink_to("loop")
    with capture_logs() as logs:
        os.utime(path)
        await until(lambda: any("Failed to look for drivers" in one["event"] for one in logs))
        with pytest.raises(Unavailable, match="Too many levels of symbolic links"):
            await volumes.prepare(flex.request("second", driver="example.com/other"))
    await volumes.release(flex.request())
    host.directory = readable
    flex.install_plain(name="example.com/other")
    await volumes.prepare(flex.request("second", driver="example.com/other"))


async def test_a_driver_that_writes_its_log_beside_it_causes_few_looks(flex: FlexNode) -> None:
    path = flex.install_plain()
    looks: list[float] = []
    discovery = Discovery(flex.host, at_once, lambda _: looks.append(time.monotonic()))
    await discovery.look()
    task = asyncio.create_task(discovery.run(), name="discovery")
    while len(looks) < 5:
        (path.parent / "log").write_text("a line")
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert min(later - earlier for earlier, later in itertools.pairwise(looks[1:])) >= PAUSE_SECONDS / 2


@pytest.mark.parametrize("kind", ["directory", "dangling link", "fifo", "not executable", "empty"])
async def test_what_is_not_an_executable_file_is_not_a_driver_and_harms_no_other(
    flex: FlexNode, kind: str
) -> None:
    path = flex.path_of("example.com/odd")
    path.parent.mkdir(parents=True)
    make: dict[str, Callable[[], object]] = {
        "directory": path.mkdir,
        "dangling link": lambda: path.symlink_to("missing"),
        "fifo": lambda: os.mkfifo(path, 0o755),
        "not executable": lambda: path.write_text("#!/bin/sh\n"),
        "empty": lambda: os.close(os.open(path, os.O_CREAT, 0o755)),
    }
    make[kind]()
    flex.install_plain()
    volumes = await flex.open()
    await volumes.prepare(flex.request())
    with pytest.raises(Unavailable, match=r"no executable .*/example\.com~odd/odd; install the driver there"):
        await volumes.prepare(flex.request("odd", driver="example.com/odd"))


async def test_a_driver_may_be_a_link_and_its_directory_too(flex: FlexNode) -> None:
    real = flex.install_plain(name="elsewhere/ramdisk")
    path = flex.path_of()
    path.parent.symlink_to(real.parent)
    volumes = await flex.open()
    await volumes.prepare(flex.request())
    await volumes.release(flex.request())


async def test_a_script_with_line_ends_of_windows_says_so(flex: FlexNode) -> None:
    flex.install_text("#!/bin/sh\r\necho hello\r\n")
    volumes = await flex.open()
    with pytest.raises(Unavailable, match=r"cannot be started: .*CR LF"):
        await volumes.prepare(flex.request())


# --- names ---


@pytest.mark.parametrize(
    "changes", [{"persistent_volume": "v" * 300}, {"persistent_volume": ".."}, {"persistent_volume": "a/b"}]
)
async def test_a_volume_whose_name_was_refused_is_released(flex: FlexNode, changes: dict[str, Any]) -> None:
    flex.install_plain()
    volumes = await flex.open()
    good = flex.request()
    request = good.__class__(
        **{
            **{name: getattr(good, name) for name in good.__struct_fields__},
            **changes,
        }
    )
    with pytest.raises(InvalidPod):
        await volumes.prepare(request)
    await volumes.release(request)
    assert flex.commands() == []


async def test_the_error_of_too_many_options_names_the_driver(flex: FlexNode) -> None:
    flex.install_plain(mount=says(failure("never called"), 1))
    volumes = await flex.open()
    with pytest.raises(InvalidPod, match=r"volume data: flexVolume: options and secrets") as error:
        await volumes.prepare(flex.request(options={"a": "x" * 200_000}))
    assert error.value.field == "flexVolume"


async def test_a_volume_is_released_with_the_entry_of_an_earlier_version(flex: FlexNode) -> None:
    """The file is that of the first version, with a device that another pod has used before."""
    flex.install_attaching()
    request = flex.request(persistent_volume="pv-1")
    directory = flex.global_directory("pv-1")
    use = {"target": request.target, "pod_uid": "uid-web", "pod": "default/web", "read_only": False}
    entry = {
        "driver": "example.com/ramdisk",
        "volume": "pv-1",
        "attach": True,
        "global_directory": str(directory),
        "device": "/dev/fake0",
        "node": "node-1",
        "fingerprint": "0" * 64,
        "read_only": False,
        "is_formatting": False,
        "stage": "mounted",
        "uses": {request.target: {**use, "state": "mounted", "is_mount": True}},
        "version": 1,
    }
    path = flex.host.state_directory / "volumes" / "9e440f9a5d5bef76efc565d8d8aeccda3f20e26d.json"
    path.parent.mkdir()
    path.write_text(json.dumps(entry))
    for mounted in (str(directory), request.target):
        Path(mounted).mkdir(parents=True, exist_ok=True)
        flex.node.mount(mounted)
    await (await flex.open()).release(request)
    assert flex.calls()[-1] == ["detach", "pv-1", "node-1"]
    assert (flex.node.mounted, flex.journal()) == ([], [])
