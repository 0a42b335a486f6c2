"""The table of mounts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.host.mount_table import (
    MountLine,
    kernel_path,
    mount_on,
    parse_mounts,
    read_mounts,
    same_volume,
)

LINE = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
POD = "/r/pods/%s/volumes/v~d/%s"


def line(target: str) -> MountLine:
    return MountLine(target, "tmpfs", "tmpfs", False)


def test_a_line_is_read_with_its_escapes() -> None:
    assert parse_mounts(LINE) == (MountLine("/mnt 2", "ext3", "/dev/root", False),)
    (read_only,) = parse_mounts(LINE.replace(b"rw,noatime", b"ro,noatime"))
    assert read_only.read_only


def test_the_mounts_of_this_machine_are_read() -> None:
    assert "/proc" in [one.target for one in read_mounts()]


def test_the_topmost_mount_is_found() -> None:
    mounts = (line("/a"), MountLine("/a", "ext4", "x", True), line("/ab"))
    found = mount_on(mounts, "/a")
    assert found is not None
    assert found.fs_type == "ext4"
    assert mount_on(mounts, "/a/b") is None


def test_the_same_volume_in_other_pods_is_found_by_the_kubelets_layout() -> None:
    mounts = [
        line(POD % ("other", "pv")),
        line(POD % ("other", "pv2")),
        line("/r/pods/other/volume-subpaths/v~d/pv"),
        line("/x/pods/other/volumes/v~d/pv"),
        line("/pv"),
        line(POD % ("mine", "pv")),
    ]
    assert same_volume(mounts, POD % ("mine", "pv")) == (POD % ("other", "pv"),)
    assert same_volume(mounts, "/a/b/c/pv") == ()


def test_links_in_the_directory_of_a_path_are_resolved_and_the_path_itself_is_not(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (real / "target").symlink_to("/elsewhere")
    assert kernel_path(str(tmp_path / "link" / "target")) == str(real / "target")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_error(data: bytes) -> None:
    parse_mounts(data)
