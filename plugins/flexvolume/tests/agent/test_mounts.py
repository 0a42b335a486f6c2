"""Commands for mounts, and what the mount table decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.fsgroup import TopDirectory
from kubeletx_flexvolume.agent.mounts import Mounts
from kubeletx_flexvolume.agent.namespace import MountNamespace
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.mount_table import find_topmost, parse_table

from kubeletx.api import Conflict, Unavailable
from plugins.flexvolume.tests.fake_programs import FakePrograms

DEVICE = AttachedSource(type=SourceType.DEVICE, source="/dev/loop7")
GLOBAL = "36 22 7:7 / /g/pv rw,relatime shared:1 - ext4 /dev/loop7 rw\n"
BOUND = "37 22 7:7 / /t/pv {} shared:1 - ext4 /dev/loop7 rw\n"


class Place:
    """`Mounts` with a mount table that is a file; fake programs change it."""

    def __init__(self, tmp_path: Path, programs: FakePrograms, pid: int | None = None) -> None:
        process = tmp_path / "proc" / ("self" if pid is None else str(pid))
        process.mkdir(parents=True)
        self.table = process / "mountinfo"
        self.table.write_text("")
        self.programs = programs
        self.namespace = MountNamespace(pid, tmp_path / "proc")
        self.commands = Commands(tmp_path)
        self.mounts = Mounts(self.commands, self.namespace, mount_seconds=10, unmount_seconds=10)

    def add_when(self, program: str, line: str) -> None:
        self.programs.answer(program, then=f"printf '%s\\n' '{line.strip()}' >> {self.table}")


@pytest.fixture
def place(tmp_path: Path, programs: FakePrograms) -> Place:
    return Place(tmp_path, programs)


async def mount(place: Place, source: AttachedSource = DEVICE, *, read_only: bool = False) -> bool:
    return await place.mounts.mount(
        "pv", source, "/g/pv", read_only=read_only, fs_type="ext4", options=("noatime",)
    )


async def test_a_device_is_mounted_with_its_file_system(place: Place) -> None:
    place.add_when("mount", GLOBAL)
    assert await mount(place)
    assert place.programs.calls == ["mount -c -t ext4 -o rw,noatime -- /dev/loop7 /g/pv"]
    assert await mount(place)  # it is there
    assert len(place.programs.calls) == 1


async def test_a_remote_source_brings_its_own_type_and_options(place: Place) -> None:
    place.programs.answer("mount")
    remote = AttachedSource(
        type=SourceType.REMOTE, source="a.example:/x", fs_type="nfs", mount_options=("hard",)
    )
    assert not await mount(place, remote, read_only=True)
    assert place.programs.calls == ["mount -c -t nfs -o ro,noatime,hard -- a.example:/x /g/pv"]


async def test_a_directory_is_bind_mounted(place: Place) -> None:
    place.programs.answer("mount")
    assert await mount(place, AttachedSource(type=SourceType.DIRECTORY, source="/pool/d"), read_only=True)
    assert place.programs.calls == ["mount -c --bind -- /pool/d /g/pv"]


async def test_another_file_system_at_the_place_is_refused(place: Place) -> None:
    place.table.write_text(GLOBAL.replace("/dev/loop7", "/dev/sda1"))
    with pytest.raises(Conflict, match="/dev/sda1 is mounted on /g/pv, not /dev/loop7; unmount it"):
        await mount(place)


async def test_the_present_mount_tells_if_it_can_be_written(place: Place) -> None:
    place.table.write_text(GLOBAL.replace("rw,relatime", "ro,relatime"))
    assert not await mount(place)
    place.programs.answer("mount")
    await place.mounts.remount_writable("pv", "/g/pv")
    assert place.programs.calls == ["mount -c -o remount,rw -- /g/pv"]


async def test_a_failed_mount_gives_the_programs_words(place: Place) -> None:
    place.programs.answer("mount", code=32, err="mount: wrong fs type,\n bad option\n")
    with pytest.raises(
        Unavailable, match=r"volume pv: mount .* exit status 32: mount: wrong fs type, bad option"
    ):
        await mount(place)


@pytest.mark.parametrize(
    ("read_only", "options", "expected"),
    [
        (False, (), "bind"),
        (False, ("nosuid", "discard"), "bind,nosuid"),
        (True, (), "bind,ro"),
        (True, ("noexec", "nodev"), "bind,ro,noexec,nodev"),
    ],
)
async def test_a_bind_is_as_the_pod_asks_and_keeps_the_flags(
    place: Place, read_only: bool, options: tuple[str, ...], expected: str
) -> None:
    place.table.write_text(GLOBAL)
    place.add_when("mount", BOUND.format("ro" if read_only else "rw"))
    await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=read_only, options=options)
    assert place.programs.calls == [f"mount -c -o {expected} -- /g/pv /t/pv"]
    await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=read_only, options=options)
    assert len(place.programs.calls) == 1


async def test_a_bind_that_can_be_written_against_the_request_is_refused(place: Place) -> None:
    place.table.write_text(GLOBAL)
    place.add_when("mount", BOUND.format("rw"))
    with pytest.raises(Unavailable, match="the mount on /t/pv is not read-only"):
        await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=True, options=())


async def test_a_mount_that_does_not_appear_in_the_kubelets_namespace_is_an_error(place: Place) -> None:
    place.table.write_text(GLOBAL)
    place.programs.answer("mount")
    with pytest.raises(Unavailable, match="is not in the kubelet's mount namespace"):
        await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=False, options=())


async def test_a_directory_on_which_nothing_is_mounted_is_not_given_to_a_pod(place: Place) -> None:
    with pytest.raises(Unavailable, match="volume pv: nothing is mounted on /g/pv"):
        await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=False, options=())
    assert place.programs.calls == []


async def test_a_foreign_mount_at_the_target_is_refused(place: Place) -> None:
    place.table.write_text(GLOBAL + BOUND.format("rw").replace("7:7 /", "8:1 /home"))
    with pytest.raises(Conflict, match="is mounted on /t/pv; unmount it"):
        await place.mounts.bind("pv", "/g/pv", "/t/pv", read_only=False, options=())


async def test_everything_that_is_stacked_is_unmounted(place: Place) -> None:
    place.table.write_text(GLOBAL + GLOBAL)
    place.programs.answer("umount", then=f"sed -i '$d' {place.table}")
    await place.mounts.unmount("pv", "/g/pv")
    assert place.programs.calls == ["umount -c -- /g/pv"] * 2
    await place.mounts.unmount("pv", "/g/pv")
    assert len(place.programs.calls) == 2


async def test_a_failed_unmount_succeeds_if_nothing_is_mounted_any_more(place: Place) -> None:
    place.table.write_text(GLOBAL)
    place.programs.answer("umount", code=32, err="not mounted", then=f": > {place.table}")
    await place.mounts.unmount("pv", "/g/pv")


async def test_a_busy_mount_is_an_error_and_can_be_unmounted_lazily(place: Place) -> None:
    place.table.write_text(GLOBAL)
    place.programs.answer("umount", code=32, err="umount: /g/pv: target is busy.")
    with pytest.raises(Unavailable, match="target is busy"):
        await place.mounts.unmount("pv", "/g/pv")
    place.programs.answer("umount", then=f": > {place.table}")
    await place.mounts.unmount("pv", "/g/pv", lazy=True)
    assert place.programs.calls[-1] == "umount -c -f -l -- /g/pv"


async def test_a_file_system_of_a_server_is_made_read_only_when_no_process_writes(place: Place) -> None:
    await place.mounts.stop_writers("pv", "/g/pv")
    assert place.programs.calls == []
    place.table.write_text(GLOBAL)
    place.programs.answer("mount")
    await place.mounts.stop_writers("pv", "/g/pv")
    assert place.programs.calls == ["mount -c -o remount,ro -- /g/pv"]
    place.programs.answer("mount", code=32, err="mount.nfs: /g/pv is busy or already mounted")
    with pytest.raises(
        Unavailable, match="volume pv: it is in use: a process has a file open and can still write"
    ):
        await place.mounts.stop_writers("pv", "/g/pv")


async def test_a_server_that_does_not_answer_keeps_no_mount(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.table.write_text(GLOBAL)
    place.programs.answer("mount", code=32, err="mount.nfs: Stale file handle")
    await place.mounts.stop_writers("pv", "/g/pv")
    monkeypatch.setattr(place.mounts, "_unmount_seconds", 0.1)
    place.programs.answer("mount", then="while :; do /bin/sleep 1; done")
    await place.mounts.stop_writers("pv", "/g/pv")


async def test_programs_run_in_the_namespace_of_the_given_process(
    tmp_path: Path, programs: FakePrograms
) -> None:
    place = Place(tmp_path, programs, pid=4711)
    programs.answer("nsenter")
    assert await mount(place)
    namespace = f"{tmp_path}/proc/4711/ns/mnt"
    assert programs.calls == [
        f"nsenter --mount={namespace} -- mount -c -t ext4 -o rw,noatime -- /dev/loop7 /g/pv"
    ]


async def test_the_top_directory_is_given_to_the_group(place: Place) -> None:
    place.programs.answer("chgrp")
    place.programs.answer("chmod")
    await TopDirectory(place.commands, place.namespace).apply("pv", "/g/pv", 2000)
    assert place.programs.calls == ["chgrp -- 2000 /g/pv", "chmod -- g+rwxs /g/pv"]
    place.programs.answer("chgrp", code=1, err="read-only file system")
    with pytest.raises(Unavailable, match="read-only file system"):
        await TopDirectory(place.commands, place.namespace).apply("pv", "/g/pv", 2000)


def test_directories_are_made_and_removed_in_the_namespace(tmp_path: Path, programs: FakePrograms) -> None:
    place = Place(tmp_path, programs, pid=4711)
    root = tmp_path / "proc" / "4711" / "root"
    (root / "kubelet").mkdir(parents=True)
    place.mounts.make_directory("/kubelet", "/kubelet/plugins/pv")
    place.mounts.check_directory("/kubelet", "/kubelet/plugins/pv")
    assert (root / "kubelet" / "plugins" / "pv").is_dir()
    place.mounts.remove_directory("/kubelet", "/kubelet/plugins/pv")
    place.mounts.remove_directory("/kubelet", "/kubelet/plugins/pv")
    assert not (root / "kubelet" / "plugins" / "pv").exists()


def test_the_table_is_read_with_all_its_escapes() -> None:
    lines = [
        "36 22 7:7 /a\\040b /x\\012y ro,relatime shared:1 master:2 - ext4 /dev/loop7 rw",
        "37 22 7:8 / /x\\012y rw - xfs /dev/loop8 rw",
        "broken",
        "",
    ]
    first, second = parse_table(lines)
    assert (first.root, first.target, first.is_read_only) == ("/a b", "/x\ny", True)
    assert find_topmost((first, second), "/x\ny") == second
    assert find_topmost((first, second), "/x") is None
    assert not first.has_same_files(second)
