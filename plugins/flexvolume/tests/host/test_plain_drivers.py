"""Drivers without attach: init, mount and unmount."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, TimedOut, Unavailable, Unsupported
from plugins.flexvolume.tests.host.flex_model import (
    DRIVER,
    NOT_SUPPORTED,
    OK,
    PLAIN,
    FlexNode,
    failure,
    says,
)

LARGE = 1 << 50
"""A size above that of the test machine's disk, which the fake mounts have."""


async def test_a_volume_is_mounted_and_unmounted(flex: FlexNode) -> None:
    flex.install_plain()
    volumes, request = await flex.open(), flex.request(options={"size": "1"})
    ready = await volumes.prepare(request)
    assert ready.path == request.target
    assert flex.node.mounted == [request.target]
    await volumes.release(request)
    assert flex.node.mounted == []
    assert flex.commands() == ["mount", "unmount"]
    assert flex.calls()[1] == ["unmount", request.target]
    assert flex.journal() == []
    assert flex.running() == []
    assert not Path(request.target).exists()


async def test_the_arguments_of_mount_are_the_target_and_one_json_object(flex: FlexNode) -> None:
    flex.install_plain()
    volumes = await flex.open()
    request = flex.request(
        options={"size": "1"}, fs_type="xfs", read_only=True, fs_group=42, secrets={"key": b"hunter2"}
    )
    await volumes.prepare(request)
    ((command, target, text),) = flex.calls()
    assert (command, target) == ("mount", request.target)
    assert json.loads(text) == {
        "kubernetes.io/fsGroup": "42",
        "kubernetes.io/fsType": "xfs",
        "kubernetes.io/mounterArgs.FsGroup": "42",
        "kubernetes.io/pod.name": "web",
        "kubernetes.io/pod.namespace": "default",
        "kubernetes.io/pod.uid": "uid-web",
        "kubernetes.io/pvOrVolumeName": "data",
        "kubernetes.io/readwrite": "ro",
        "kubernetes.io/secret/key": base64.b64encode(b"hunter2").decode(),
        "kubernetes.io/serviceAccount.name": "default",
        "size": "1",
    }


async def test_a_second_prepare_does_not_mount_again(flex: FlexNode) -> None:
    flex.install_plain()
    volumes, request = await flex.open(), flex.request()
    assert await volumes.prepare(request) == await volumes.prepare(request)
    assert flex.commands() == ["mount"]


async def test_a_target_that_is_a_mount_point_already_is_not_mounted_again(flex: FlexNode) -> None:
    flex.install_plain()
    volumes, request = await flex.open(), flex.request()
    flex.node.mount(request.target)
    await volumes.prepare(request)
    assert flex.commands() == []
    await volumes.release(request)
    assert flex.node.mounted == []


async def test_a_failed_mount_is_undone(flex: FlexNode) -> None:
    flex.install_plain(mount=f'add "$2"; {says(failure("no space"), 1)}')
    volumes, request = await flex.open(), flex.request()
    with pytest.raises(Unavailable, match=f"driver {DRIVER}: mount failed: 'no space'"):
        await volumes.prepare(request)
    assert flex.commands() == ["mount", "unmount"]
    assert flex.node.mounted == []
    assert flex.journal() == []


async def test_a_failed_mount_whose_undoing_fails_stays_in_the_journal_for_release(flex: FlexNode) -> None:
    flex.install_plain(mount=f'add "$2"; {says(failure("no space"), 1)}', unmount=says(failure("busy"), 1))
    volumes, request = await flex.open(), flex.request()
    with pytest.raises(Unavailable, match=r"no space.*undoing it failed, too: .*busy"):
        await volumes.prepare(request)
    assert flex.journal() == ["data"]
    with pytest.raises(Unavailable, match="busy") as error:
        await volumes.release(request)
    assert error.value.reason == "FailedKillPod"
    flex.install_plain()
    await volumes.release(request)
    assert (flex.node.mounted, flex.journal()) == ([], [])


@pytest.mark.parametrize(
    "unmount", [says(failure("not mounted"), 1), "echo not mounted >&2; exit 32", "exit 1", "exit 0"]
)
async def test_a_failed_unmount_of_nothing_is_done(flex: FlexNode, unmount: str) -> None:
    """Drivers in shell often print no JSON object when umount(8) fails."""
    flex.install_plain(mount=says(failure("no server"), 1), unmount=unmount)
    volumes, request = await flex.open(), flex.request()
    with pytest.raises(Unavailable, match="no server") as error:
        await volumes.prepare(request)
    assert "undoing" not in str(error.value)
    assert flex.journal() == []


@pytest.mark.parametrize("unmount", [says(failure("files are in use"), 1), "echo files are in use; exit 1"])
async def test_a_driver_that_only_writes_files_is_unmounted_until_it_succeeds(
    flex: FlexNode, unmount: str
) -> None:
    flex.install_plain(mount=f'echo 1 > "$2/file"; {says(OK)}', unmount=unmount)
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises((Unavailable, TimedOut), match="files are in use"):
        await volumes.release(request)
    assert flex.journal() == ["data"]
    flex.install_plain(unmount=f'rm "$2/file"; {says(OK)}')
    await volumes.release(request)
    assert flex.journal() == []


async def test_an_unmount_that_leaves_a_mount_is_not_a_success(flex: FlexNode) -> None:
    flex.install_plain(unmount=says(OK))
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises(Unavailable, match="still is a mount point"):
        await volumes.release(request)
    assert flex.journal() == ["data"]


async def test_without_unmount_the_host_unmounts_itself(flex: FlexNode) -> None:
    flex.install_plain(unmount=says(NOT_SUPPORTED, 1))
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    await volumes.release(request)
    assert flex.node.ran == [f"umount -c -- {request.target}"]
    assert flex.node.mounted == []


async def test_a_command_that_is_not_supported_is_called_once(flex: FlexNode) -> None:
    flex.install_plain(unmount=says(NOT_SUPPORTED))
    volumes = await flex.open()
    for _ in range(3):
        request = flex.request()
        await volumes.prepare(request)
        await volumes.release(request)
    assert flex.commands().count("unmount") == 1
    flex.install_plain()
    await volumes.prepare(flex.request())
    await volumes.release(flex.request())
    assert flex.commands().count("unmount") == 2


async def test_a_driver_without_attach_and_mount_is_refused(flex: FlexNode) -> None:
    flex.install_plain(mount=says(NOT_SUPPORTED))
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="supports neither attach nor mount"):
        await volumes.prepare(flex.request())
    assert flex.journal() == []


async def test_capabilities_reach_the_agent(flex: FlexNode) -> None:
    reply = '{"status":"Success","Capabilities":{"ATTACH":false,"fsgroup":false,"supportsMetrics":true}}'
    flex.install_plain(init=says(reply))
    volumes = await flex.open()
    found = (await volumes.prepare(flex.request())).capabilities
    assert (found.fs_group, found.selinux_relabel, found.stats) == (False, True, True)


async def test_statistics_are_those_of_the_file_system(flex: FlexNode) -> None:
    flex.install_plain(
        init=says('{"status":"Success","capabilities":{"attach":false,"supportsMetrics":true}}'),
        mount=says(OK),
        unmount=says(OK),
    )
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    stats = await volumes.stats(request)
    assert stats.capacity_bytes
    assert stats.inodes


async def test_statistics_of_a_volume_that_is_no_longer_mounted_are_refused(flex: FlexNode) -> None:
    flex.install_plain(
        init=says('{"status":"Success","capabilities":{"attach":false,"supportsMetrics":true}}')
    )
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    flex.node.unmount(request.target)
    with pytest.raises(Unavailable, match="not mounted any more"):
        await volumes.stats(request)


async def test_statistics_need_the_capability(flex: FlexNode) -> None:
    flex.install_plain()
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises(Unsupported, match="supportsMetrics"):
        await volumes.stats(request)


async def test_a_volume_is_expanded_by_the_driver(flex: FlexNode) -> None:
    flex.install_plain(
        expandvolume=says(OK), expandfs=says('{"status":"Success","volumeNewSize":1125899906842625}')
    )
    volumes, request = await flex.open(), flex.request(persistent_volume="pv-1")
    await volumes.prepare(request)
    assert await volumes.expand(request, LARGE) == LARGE + 1
    first, second = flex.calls()[1:]
    assert (first[0], first[-3], first[-2]) == ("expandvolume", request.target, str(LARGE))
    assert second[0] == "expandfs"
    assert second[2:-1] == ["", request.target, str(LARGE)]


async def test_a_driver_that_does_not_expand_says_so(flex: FlexNode) -> None:
    flex.install_plain()
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises(Unsupported, match="does not expand volumes"):
        await volumes.expand(request, LARGE)


async def test_a_volume_that_is_large_enough_is_not_changed(flex: FlexNode) -> None:
    flex.install_plain(expandvolume=says(OK), expandfs=says(OK))
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    assert await volumes.expand(request, 1) > 1
    assert flex.commands() == ["mount"]


async def test_release_without_anything_succeeds(flex: FlexNode) -> None:
    volumes = await flex.open()
    await volumes.release(flex.request())
    await volumes.release(replace(flex.request(), driver="../../etc"))


async def test_release_of_a_journaled_volume_waits_for_its_driver(flex: FlexNode) -> None:
    path = flex.install_plain()
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    path.unlink()
    with pytest.raises(Unavailable) as error:
        await volumes.release(request)
    assert DRIVER in str(error.value)
    assert str(path) in str(error.value)
    assert "install" in str(error.value)
    flex.install_plain()
    await volumes.release(request)
    assert flex.node.mounted == []


async def test_a_driver_that_was_deleted_before_mount_leaves_nothing_to_release(flex: FlexNode) -> None:
    flex.install_plain(init=f'rm -f "$0"; {says(PLAIN)}')
    volumes, request = await flex.open(), flex.request()
    with pytest.raises(Unavailable):
        await volumes.prepare(request)
    await volumes.release(request)
    assert flex.journal() == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"is_block": True}, "volumeMode"),
        ({"mount_options": ("noatime",)}, "mountOptions"),
        ({"options": {"kubernetes.io/secret/x": "y"}}, "flexVolume.options"),
        ({"options": {"a.K8S.io/x": "y"}}, "flexVolume.options"),
        ({"options": {"x": 1}}, "flexVolume.options"),
        ({"options": {"x": "a\0b"}}, "flexVolume.options"),
        ({"fs_type": "-t"}, "flexVolume.fsType"),
        ({"fs_type": "../ext4"}, "flexVolume.fsType"),
    ],
)
async def test_a_volume_that_can_never_be_mounted_is_refused(
    flex: FlexNode, fields: dict[str, object], field: str
) -> None:
    flex.install_plain()
    volumes = await flex.open()
    with pytest.raises(InvalidPod) as error:
        await volumes.prepare(flex.request(**fields))
    assert error.value.field.startswith(field)
    assert flex.commands() == []


@pytest.mark.parametrize("driver", ["", "..", "a/../b", "/a", "a//b", ".hidden/x", "a\0b"])
async def test_a_driver_name_that_leaves_the_directory_is_refused(flex: FlexNode, driver: str) -> None:
    volumes = await flex.open()
    request = replace(flex.request(), driver=driver)
    with pytest.raises(InvalidPod):
        await volumes.prepare(request)
    await volumes.release(request)


async def test_too_many_options_for_a_command_line_are_an_error_of_the_pod(flex: FlexNode) -> None:
    flex.install_plain()
    volumes = await flex.open()
    with pytest.raises(InvalidPod, match="too large for a command line"):
        await volumes.prepare(flex.request(secrets={"key": b"x" * 200_000}))


async def test_a_mount_that_hangs_is_killed_and_undone(tmp_path: Path) -> None:
    flex = FlexNode(tmp_path, timeout_seconds=0.5)
    flex.install_plain(mount='add "$2"; sleep 1000')
    volumes, request = await flex.open(), flex.request()
    try:
        with pytest.raises(TimedOut, match="did not answer within"):
            await volumes.prepare(request)
        assert flex.commands() == ["mount", "unmount"]
        assert (flex.node.mounted, flex.journal(), flex.running()) == ([], [], [])
    finally:
        await flex.close()
