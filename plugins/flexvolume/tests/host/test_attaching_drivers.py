"""Drivers with attach: attach, waitforattach, mountdevice, mount, and back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, TimedOut, Unavailable
from plugins.flexvolume.tests.host.flex_model import (
    NOT_SUPPORTED,
    OK,
    FlexNode,
    failure,
    mode_of,
    says,
)

UP = ["attach", "waitforattach", "mountdevice", "mount"]
DOWN = ["unmount", "unmountdevice", "detach"]


async def test_a_volume_goes_up_and_down_in_order(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes, request = await flex.open(), flex.request(persistent_volume="pv-1", options={"image": "a"})
    directory = str(flex.global_directory("pv-1"))
    ready = await volumes.prepare(request)
    assert ready.device == "/dev/fake0"
    assert flex.node.mounted == [directory, request.target]
    assert mode_of(Path(directory)) == 0o750
    await volumes.release(request)
    assert flex.commands() == UP + DOWN
    attach, wait, device, mount, unmount, unmountdevice, detach = flex.calls()
    assert attach[2] == "node-1"
    assert json.loads(attach[1]) == {
        "image": "a",
        "kubernetes.io/fsType": "",
        "kubernetes.io/pvOrVolumeName": "pv-1",
        "kubernetes.io/readwrite": "rw",
    }
    assert wait == ["waitforattach", "/dev/fake0", attach[1]]
    assert device == ["mountdevice", directory, "/dev/fake0", attach[1]]
    assert mount[1] == request.target
    assert unmount == ["unmount", request.target]
    assert unmountdevice == ["unmountdevice", directory]
    assert detach == ["detach", "pv-1", "node-1"]
    assert (flex.node.mounted, flex.journal()) == ([], [])
    assert not Path(directory).exists()


async def test_two_pods_share_one_device(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one, other = (flex.request(pod=pod, persistent_volume="pv-1") for pod in ("one", "other"))
    await asyncio.gather(volumes.prepare(one), volumes.prepare(other))
    assert sorted(flex.commands()) == sorted([*UP, "mount"])
    await volumes.release(one)
    assert flex.commands()[-1] == "unmount"
    await volumes.release(other)
    assert flex.commands()[-3:] == DOWN
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_device_is_kept_while_the_mount_table_shows_a_pod_that_no_journal_knows(
    flex: FlexNode,
) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one, other = (flex.request(pod=pod, persistent_volume="pv-1") for pod in ("one", "other"))
    flex.node.mount(other.target)
    await volumes.prepare(one)
    await volumes.release(one)
    assert "detach" not in flex.commands()
    assert flex.journal() == ["pv-1"]
    await volumes.release(other)
    assert flex.commands()[-3:] == DOWN
    assert (flex.node.mounted, flex.journal()) == ([], [])


@pytest.mark.parametrize("failing", UP)
async def test_a_step_that_fails_is_undone_in_reverse(flex: FlexNode, failing: str) -> None:
    flex.install_attaching(**{failing: says(failure("no luck"), 1)})
    volumes = await flex.open()
    with pytest.raises(Unavailable, match=f"{failing} failed: 'no luck'"):
        await volumes.prepare(flex.request())
    undone = {"mount": DOWN, "mountdevice": DOWN[1:]}.get(failing, ["detach"])
    assert flex.commands() == UP[: UP.index(failing) + 1] + undone
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_failed_mount_of_a_second_pod_keeps_the_device_of_the_first(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one, other = (flex.request(pod=pod, persistent_volume="pv-1") for pod in ("one", "other"))
    await volumes.prepare(one)
    flex.install_attaching(mount=says(failure("no luck"), 1))
    with pytest.raises(Unavailable):
        await volumes.prepare(other)
    assert flex.node.mounted == [str(flex.global_directory("pv-1")), one.target]
    flex.install_attaching()
    await volumes.release(one)
    assert flex.commands()[-3:] == DOWN
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_failed_detach_is_done_again_by_release(flex: FlexNode) -> None:
    flex.install_attaching(detach=says(failure("server away"), 1))
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises(Unavailable, match="server away"):
        await volumes.release(request)
    assert flex.journal() == ["data"]
    flex.install_attaching()
    flex.forget_calls()
    again = await flex.open()
    await again.release(request)
    assert flex.commands() == ["detach"]
    assert flex.journal() == []


async def test_an_unmountdevice_of_nothing_needs_no_answer(flex: FlexNode) -> None:
    flex.install_attaching(
        mountdevice=says(failure("no luck"), 1), unmountdevice="echo not mounted >&2; exit 32"
    )
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="no luck") as error:
        await volumes.prepare(flex.request())
    assert "undoing" not in str(error.value)
    assert flex.journal() == []


async def test_an_attach_that_fails_may_fail_to_detach(flex: FlexNode) -> None:
    flex.install_attaching(attach=says(failure("no such disk"), 1), detach=says(failure("not attached"), 1))
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="no such disk") as error:
        await volumes.prepare(flex.request())
    assert "undoing" not in str(error.value)
    assert flex.journal() == []


async def test_commands_that_are_not_supported_have_their_fallbacks(flex: FlexNode) -> None:
    flex.install_attaching(
        waitforattach=says(NOT_SUPPORTED),
        attach=says(NOT_SUPPORTED),
        mount=says(NOT_SUPPORTED),
        unmount=says(NOT_SUPPORTED),
        unmountdevice=says(NOT_SUPPORTED),
        detach=says(NOT_SUPPORTED),
    )
    volumes, request = await flex.open(), flex.request(read_only=True)
    directory = str(flex.global_directory("data"))
    ready = await volumes.prepare(request)
    assert ready.device == ""
    assert flex.calls()[2][:3] == ["mountdevice", directory, ""]
    await volumes.release(request)
    assert flex.node.ran == [
        f"mount -c -o bind,ro -- {directory} {request.target}",
        f"umount -c -- {request.target}",
        f"umount -c -- {directory}",
    ]
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_pod_never_gets_a_directory_of_the_nodes_own_disk(flex: FlexNode) -> None:
    flex.install_attaching(
        attach=says(NOT_SUPPORTED),
        waitforattach=says(NOT_SUPPORTED),
        mountdevice=says(OK),
        mount=says(NOT_SUPPORTED),
    )
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="node's own disk"):
        await volumes.prepare(flex.request())
    assert flex.journal() == []


async def test_inline_volumes_of_one_name_and_other_options_do_not_share_a_device(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one = flex.request(pod="one", options={"image": "a"})
    other = flex.request(pod="other", options={"image": "b"})
    await volumes.prepare(one)
    with pytest.raises(
        Unavailable, match=r"pod default/one uses a volume .* with this name and other options"
    ):
        await volumes.prepare(other)
    await volumes.release(one)
    await volumes.prepare(other)
    await volumes.release(other)
    assert flex.journal() == []


async def test_a_device_that_is_mounted_read_only_is_not_written_by_another_pod(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    one = flex.request(pod="one", persistent_volume="pv-1", read_only=True)
    other = flex.request(pod="other", persistent_volume="pv-1")
    await volumes.prepare(one)
    with pytest.raises(Unavailable, match="uses it read-only"):
        await volumes.prepare(other)
    await volumes.release(one)
    await volumes.prepare(other)


async def test_a_volume_that_was_attached_with_other_options_is_attached_again(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    await volumes.prepare(flex.request(options={"image": "a"}))
    await volumes.prepare(flex.request(options={"image": "b"}))
    assert flex.commands() == UP + DOWN + UP


async def test_a_restarted_agent_releases_without_options(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    await volumes.prepare(flex.request(persistent_volume="pv-1", options={"image": "a"}))
    await volumes.close()
    after = await flex.open()
    await after.release(flex.request(persistent_volume="pv-1"))
    assert flex.commands() == UP + DOWN
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_volume_is_released_by_the_mount_table_if_the_journal_is_lost(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes, request = await flex.open(), flex.request(persistent_volume="pv-1")
    await volumes.prepare(request)
    await volumes.close()
    for path in (flex.host.state_directory / "volumes").iterdir():
        path.write_text("{")
    after = await flex.open()
    await after.release(request)
    assert flex.commands() == UP + DOWN
    assert flex.node.mounted == []
    assert [path.suffix for path in (flex.host.state_directory / "volumes").iterdir()] == [".damaged"]


async def test_after_a_reboot_the_device_is_attached_and_mounted_again(flex: FlexNode) -> None:
    flex.install_attaching()
    request = flex.request()
    await (await flex.open()).prepare(request)
    flex.node.file.write_text("")
    flex.forget_calls()
    after = await flex.open()
    await after.prepare(request)
    assert flex.commands() == UP
    await after.release(request)
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_after_a_reboot_a_volume_is_released_though_nothing_is_mounted(flex: FlexNode) -> None:
    flex.install_attaching()
    request = flex.request()
    await (await flex.open()).prepare(request)
    flex.node.file.write_text("")
    flex.install_attaching(
        unmount=says(failure("not mounted"), 1), unmountdevice=says(failure("not mounted"), 1)
    )
    after = await flex.open()
    await after.release(request)
    assert flex.commands()[-1] == "detach"
    assert flex.journal() == []


async def test_the_journal_contains_neither_options_nor_secrets(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    await volumes.prepare(flex.request(options={"image": "name-of-image"}, secrets={"key": b"hunter2"}))
    text = flex.journal_text()
    assert "pv" in text or "data" in text
    for word in ("name-of-image", "hunter2", "aHVudGVyMg"):
        assert word not in text
    assert {mode_of(path) for path in (flex.host.state_directory / "volumes").iterdir()} == {0o600}


async def test_secrets_are_passed_to_mount_only(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    await volumes.prepare(flex.request(secrets={"key": b"hunter2"}))
    assert [one[0] for one in flex.calls() if "aHVudGVyMg==" in " ".join(one)] == ["mount"]


async def test_a_device_that_is_not_a_device_is_not_mounted(flex: FlexNode) -> None:
    flex.install_attaching(mountdevice=says(NOT_SUPPORTED))
    volumes = await flex.open()
    flex.node.answer("blockdev", code=1, err="ioctl error")
    with pytest.raises(Unavailable, match="/dev/fake0 cannot be mounted: it is not a block device"):
        await volumes.prepare(flex.request())
    assert flex.node.ran == ["blockdev --getsize64 /dev/fake0"]
    assert flex.journal() == []


async def test_a_blank_device_is_formatted_and_mounted_for_a_driver_that_does_neither(flex: FlexNode) -> None:
    flex.install_attaching(mountdevice=says(NOT_SUPPORTED))
    volumes, request = await flex.open(), flex.request(fs_type="xfs")
    flex.node.answer("blkid", code=2)
    await volumes.prepare(request)
    directory = flex.global_directory("data")
    assert [call.split()[0] for call in flex.node.ran[:4]] == ["blockdev", "blkid", "wipefs", sys.executable]
    assert flex.node.ran[4:] == ["mkfs.xfs -q /dev/fake0", f"mount -c -t xfs -o rw -- /dev/fake0 {directory}"]
    await volumes.release(request)
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_format_that_does_not_end_is_noted_and_repeated(flex: FlexNode) -> None:
    """Half a file system would be refused later; this node alone may have written it."""
    flex.install_attaching(mountdevice=says(NOT_SUPPORTED))
    volumes, request = await flex.open(), flex.request()
    flex.node.answer("blkid", code=2)
    flex.node.answer("mkfs.ext4", code=1, err="no space")
    with pytest.raises(Unavailable, match=r"mkfs\.ext4 failed with exit status 1: no space"):
        await volumes.prepare(request)
    await volumes.release(request)
    assert flex.journal() == ["data"]
    flex.node.answer("mkfs.ext4")
    flex.node.ran.clear()
    await (await flex.open()).prepare(request)
    assert flex.node.ran[3].endswith("/dev/fake0 interrupted")
    assert "mkfs.ext4 -q -F -m0 /dev/fake0" in flex.node.ran
    await flex.opened[-1].release(request)
    assert flex.journal() == []


@pytest.mark.parametrize("program", ["mkfs.ext4", "fsck.ext4"])
async def test_a_format_or_check_goes_on_after_the_deadline_of_its_call(
    flex: FlexNode, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flex.install_attaching(mountdevice=says(NOT_SUPPORTED))
    volumes, request, loop = await flex.open(), flex.request(), asyncio.get_running_loop()
    is_blank = program == "mkfs.ext4"
    flex.node.answer("blkid", code=2 if is_blank else 0, out="" if is_blank else "TYPE=ext4\n")
    begun, ends = flex.node.hold(program)
    late = loop.time() + flex.settings.timeout_seconds + 1.0
    first = asyncio.create_task(volumes.prepare(request))
    await begun.wait()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: late)
        with pytest.raises(TimedOut, match="is still checked or formatted"):
            await first
    release = asyncio.create_task(volumes.release(request))
    second = asyncio.create_task(volumes.prepare(request))
    await asyncio.sleep(0)
    assert flex.commands() == ["attach", "waitforattach", "mountdevice"]
    assert flex.journal() == ["data"]
    flex.node.answer("blkid", out="TYPE=ext4\n")
    ends.set()
    await release
    await second
    assert f"{program} has ended" in flex.node.ran
    assert sum(call.startswith("mkfs.ext4 -q") for call in flex.node.ran) == is_blank
    assert request.target in flex.node.mounted
    await volumes.release(request)
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_format_that_has_not_ended_is_stopped_with_the_plugin(flex: FlexNode) -> None:
    flex.install_attaching(mountdevice=says(NOT_SUPPORTED))
    volumes, request = await flex.open(), flex.request()
    flex.node.answer("blkid", code=2)
    begun, _ = flex.node.hold("mkfs.ext4")
    call = asyncio.create_task(volumes.prepare(request))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await volumes.close()
    assert "mkfs.ext4 has ended" not in flex.node.ran
    flex.node.holds.clear()
    flex.node.ran.clear()
    await (await flex.open()).prepare(request)
    assert flex.node.ran[3].endswith("/dev/fake0 interrupted")


async def test_a_volume_name_that_leaves_the_directory_is_refused(flex: FlexNode) -> None:
    flex.install_attaching()
    volumes = await flex.open()
    for name in ("..", "a/b", "a\0b", "x" * 256):
        with pytest.raises(InvalidPod):
            await volumes.prepare(replace(flex.request(), persistent_volume=name))
    assert flex.commands() == []
