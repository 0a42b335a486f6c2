"""Commands for mounts, and what the mount table decides."""

from __future__ import annotations

import pytest
from kubeletx_flexvolume.mounts import Mounts

from kubeletx.api import Conflict, TimedOut, Unavailable
from plugins.flexvolume.tests.fake_volume import FakeVolume

DEVICE = "/dev/loop7"
GLOBAL = f"36 22 7:7 / /g/pv rw,relatime shared:1 - ext4 {DEVICE} rw"
BOUND = f"37 22 7:7 / /t/pv {{}} shared:1 - ext4 {DEVICE} rw"
SHOWN = "37 22 0:5 /loop7 /t/pv rw,relatime - devtmpfs udev rw,size=4k"


@pytest.fixture
def node() -> FakeVolume:
    return FakeVolume()


@pytest.fixture
def mounts(node: FakeVolume) -> Mounts:
    return Mounts(node)


async def mount(mounts: Mounts, *, read_only: bool = False) -> bool:
    return await mounts.mount(DEVICE, "/g/pv", fs_type="ext4", read_only=read_only, options=("noatime",))


async def test_a_device_is_mounted_with_its_file_system(node: FakeVolume, mounts: Mounts) -> None:
    node.answer("mount", then=lambda: node.add(GLOBAL))
    assert await mount(mounts)
    assert node.ran == [f"mount -c -t ext4 -o rw,noatime -- {DEVICE} /g/pv"]
    assert await mount(mounts)  # it is there
    assert len(node.ran) == 1


async def test_a_directory_is_bind_mounted(node: FakeVolume, mounts: Mounts) -> None:
    assert await mounts.mount_directory("/pool/d", "/g/pv")
    assert node.ran == ["mount -c --bind -- /pool/d /g/pv"]
    node.show(GLOBAL.replace("rw,relatime", "ro"))
    assert not await mounts.mount_directory("/pool/d", "/g/pv")


async def test_another_file_system_at_the_place_is_refused(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL.replace(DEVICE, "/dev/sda1"))
    with pytest.raises(Conflict, match="/dev/sda1 is mounted on /g/pv, not /dev/loop7; unmount it"):
        await mount(mounts)


async def test_the_present_mount_shows_if_it_can_be_written(node: FakeVolume, mounts: Mounts) -> None:
    assert not await mount(mounts, read_only=True)
    node.show(GLOBAL.replace("rw,relatime", "ro,relatime"))
    assert not await mount(mounts)
    await mounts.make_writable("/g/pv")
    assert node.ran[1:] == ["mount -c -o remount,rw -- /g/pv"]


async def test_a_failed_mount_gives_the_programs_words(node: FakeVolume, mounts: Mounts) -> None:
    node.answer("mount", code=32, err="mount: wrong fs type,\n bad option\n")
    with pytest.raises(
        Unavailable, match=r"volume pv: mount .* exit status 32: mount: wrong fs type, bad option"
    ):
        await mount(mounts)


@pytest.mark.parametrize(
    ("read_only", "flags", "expected"),
    [
        (False, "rw,nosuid,relatime", "bind"),
        (True, "rw", "bind,ro"),
        (True, "rw,nodev,noexec,relatime", "bind,ro,nodev,noexec,relatime"),
        (True, "ro,nosuid", "bind,ro,nosuid"),
    ],
)
async def test_a_bind_is_as_the_pod_asks_and_keeps_the_flags(
    node: FakeVolume, mounts: Mounts, read_only: bool, flags: str, expected: str
) -> None:
    node.show(GLOBAL.replace("rw,relatime", flags))
    node.answer("mount", then=lambda: node.add(BOUND.format("ro" if read_only else "rw")))
    for _ in range(2):
        await mounts.bind("/g/pv", "/t/pv", read_only=read_only)
    assert node.ran == [f"mount -c -o {expected} -- /g/pv /t/pv"]


@pytest.mark.parametrize(
    ("made", "words"), [(BOUND.format("rw"), "not read-only"), ("", "not in the kubelet's mount namespace")]
)
async def test_a_bind_that_is_not_as_the_pod_asks_is_an_error(
    node: FakeVolume, mounts: Mounts, made: str, words: str
) -> None:
    node.show(GLOBAL)
    node.answer("mount", then=lambda: node.add(made))
    with pytest.raises(Unavailable, match=f"the mount on /t/pv is {words}"):
        await mounts.bind("/g/pv", "/t/pv", read_only=True)


async def test_a_directory_on_which_nothing_is_mounted_is_not_given_to_a_pod(
    node: FakeVolume, mounts: Mounts
) -> None:
    with pytest.raises(Unavailable, match="volume pv: nothing is mounted on /g/pv"):
        await mounts.bind("/g/pv", "/t/pv", read_only=False)
    assert node.ran == []


async def test_a_foreign_mount_at_the_target_is_refused(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL, BOUND.format("rw").replace("7:7 /", "8:1 /home"))
    with pytest.raises(Conflict, match="is mounted on /t/pv; unmount it"):
        await mounts.bind("/g/pv", "/t/pv", read_only=False)


async def test_the_file_of_a_device_is_bound(node: FakeVolume, mounts: Mounts) -> None:
    with pytest.raises(Unavailable, match="is not in the kubelet's mount namespace"):
        await mounts.bind_device(DEVICE, "/t/pv")
    node.answer("mount", then=lambda: node.add(SHOWN))
    for _ in range(2):
        await mounts.bind_device(DEVICE, "/t/pv")
    assert node.ran[1:] == [f"mount -c --bind -- {DEVICE} /t/pv"]
    with pytest.raises(Conflict, match="/dev/loop7 is mounted on /t/pv, not /dev/loop8"):
        await mounts.bind_device("/dev/loop8", "/t/pv")


async def test_everything_that_is_stacked_is_unmounted(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL, GLOBAL)
    node.answer("umount", then=node.mounts.pop)
    for _ in range(2):
        await mounts.unmount("/g/pv")
    assert node.ran == ["umount -c -- /g/pv"] * 2


async def test_a_failed_unmount_succeeds_if_nothing_is_mounted_any_more(
    node: FakeVolume, mounts: Mounts
) -> None:
    node.show(GLOBAL)
    node.answer("umount", code=32, err="not mounted", then=node.show)
    await mounts.unmount("/g/pv")


async def test_a_busy_mount_is_an_error_and_can_be_unmounted_lazily(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL)
    node.answer("umount", code=32, err="umount: /g/pv: target is busy.")
    with pytest.raises(Unavailable, match="target is busy"):
        await mounts.unmount("/g/pv")
    node.answer("umount", then=node.show)
    await mounts.unmount("/g/pv", lazy=True)
    assert node.ran[-1] == "umount -c -f -l -- /g/pv"


async def test_mounts_that_do_not_end_are_an_error(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL)
    with pytest.raises(Unavailable, match="more than 16 mounts are on /g/pv"):
        await mounts.unmount("/g/pv")


async def test_a_file_system_of_a_server_is_made_read_only_when_no_process_writes(
    node: FakeVolume, mounts: Mounts
) -> None:
    await mounts.stop_writers("/g/pv")
    assert node.ran == []
    node.show(GLOBAL)
    await mounts.stop_writers("/g/pv")
    assert node.ran == ["mount -c -o remount,ro -- /g/pv"]
    node.answer("mount", code=32, err="mount.nfs: /g/pv is busy or already mounted")
    with pytest.raises(Unavailable, match="volume pv: it is in use: a process has a file open"):
        await mounts.stop_writers("/g/pv")


def hang() -> None:
    raise TimedOut("mount did not end within 10 s")


async def test_a_server_that_does_not_answer_keeps_no_mount(node: FakeVolume, mounts: Mounts) -> None:
    node.show(GLOBAL)
    node.answer("mount", code=32, err="mount.nfs: Stale file handle")
    await mounts.stop_writers("/g/pv")
    node.answer("mount", then=hang)
    await mounts.stop_writers("/g/pv")


async def test_the_top_directory_is_given_to_the_group(node: FakeVolume, mounts: Mounts) -> None:
    await mounts.set_group("/g/pv", 2000)
    assert node.ran == ["chgrp -- 2000 /g/pv", "chmod -- g+rwxs /g/pv"]
    node.answer("chgrp", code=1, err="read-only file system")
    with pytest.raises(Unavailable, match="read-only file system"):
        await mounts.set_group("/g/pv", 2000)
