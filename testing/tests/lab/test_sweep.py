"""What a sweep takes for ours, and what it leaves alone. No daemon, no root."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kubeletx_testing.lab import cgroups, mount_points, sweep
from kubeletx_testing.lab.cni import bridge_name, network_name
from kubeletx_testing.lab.mounts import list_mounts
from kubeletx_testing.lab.sweep import socket_path


@given(st.lists(st.text("abcdefghijklmnop/", min_size=1, max_size=20), min_size=1, max_size=6).map("/".join))
def test_names_fit_the_kernel_for_any_directory(path: str) -> None:
    directory = Path("/") / path.strip("/")
    assert len(bridge_name(directory)) <= 15
    assert network_name(directory).removeprefix("kubeletx-") in bridge_name(directory)
    assert len(f"{socket_path(directory)}.ttrpc") <= 107


def test_a_long_directory_gets_its_socket_elsewhere() -> None:
    long = Path("/work") / ("x" * 120)
    assert socket_path(long).parent != long
    assert socket_path(long) != socket_path(long / "other")
    assert socket_path(Path("/tmp/lab/a")) == Path("/tmp/lab/a/containerd.sock")


def test_a_pager_that_shows_a_file_of_the_lab_is_not_ours(tmp_path: Path) -> None:
    log = tmp_path / "containerd.log"
    log.write_text("a line\n")
    with subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL) as pager:
        try:
            assert pager.pid not in sweep.list_processes(tmp_path)
        finally:
            pager.kill()


def test_a_program_with_a_lab_name_and_path_is_ours(tmp_path: Path) -> None:
    program = tmp_path / "containerd"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as daemon:
        try:
            # For a moment after its start the kernel shows a process without its arguments.
            deadline = time.monotonic() + 30
            while not sweep.list_processes(tmp_path):
                assert time.monotonic() < deadline
            assert sweep.list_processes(tmp_path) == [daemon.pid]
            sweep.end_processes(sweep.list_processes(tmp_path))
            assert daemon.wait(30) != 0
        finally:
            daemon.kill()
    assert sweep.list_processes(tmp_path) == []


def test_frozen_containers_are_thawed_in_either_version_of_cgroups(tmp_path: Path) -> None:
    files = {}
    for number, (name, text) in enumerate((("freezer.state", "FROZEN"), ("cgroup.freeze", "1"))):
        for container in ("ours", "cri-ours.scope", "other"):
            file = tmp_path / f"hierarchy-{number}" / container / name
            file.parent.mkdir(parents=True)
            file.write_text(text)
            files[file] = text
    (tmp_path / "memory" / "ours").mkdir(parents=True)
    cgroups.thaw_containers({"ours"}, tmp_path)
    thawed = {"freezer.state": "THAWED", "cgroup.freeze": "0"}
    for file, text in files.items():
        expected = text if file.parent.name == "other" else thawed[file.name]
        assert file.read_text().startswith(expected)
    assert list((tmp_path / "memory" / "ours").iterdir()) == []


def test_a_container_that_is_removed_while_it_is_thawed_is_not_an_error(tmp_path: Path) -> None:
    for name in ("freezer.state", "cgroup.freeze"):
        file = tmp_path / name / "ours" / name
        file.parent.mkdir(parents=True)
        file.symlink_to("/dev/full")  # its writes fail
    cgroups.thaw_containers({"ours"}, tmp_path)


def test_a_lab_s_frozen_cgroups_above_its_containers_are_thawed(tmp_path: Path) -> None:
    ours, other = (tmp_path / "freezer" / name / "pod" / "freezer.state" for name in ("lab", "other"))
    for file in (ours, other):
        file.parent.mkdir(parents=True)
        file.write_text("FROZEN")
    cgroups.thaw_cgroups("lab", tmp_path)
    assert (ours.read_text(), other.read_text()) == ("THAWED", "FROZEN")


def test_an_emulator_behind_a_libvirtd_of_the_lab_is_found_by_its_pid_file(tmp_path: Path) -> None:
    pids = tmp_path / "libvirtd" / "d0" / "qemu"
    pids.mkdir(parents=True)
    program = tmp_path / "guest=kx-1,debug-threads=on"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as emulator:
        try:
            (pids / "kx-1.pid").write_text(f"{emulator.pid}")
            (pids / "kx-2.pid").write_text(f"{emulator.pid}")  # of one that ended; its pid is another's now
            (pids / "kx-3.pid").write_text("")
            deadline = time.monotonic() + 30
            while not sweep.list_processes(tmp_path):
                assert time.monotonic() < deadline
            assert sweep.list_processes(tmp_path) == [emulator.pid]
            (pids / "kx-1.pid").unlink()
            assert sweep.list_processes(tmp_path) == []
        finally:
            emulator.kill()


def test_mount_points_that_were_missing_are_removed_when_no_one_uses_them(tmp_path: Path) -> None:
    records, there = tmp_path / "records", tmp_path / "there"
    there.mkdir()
    made, filled = tmp_path / "a" / "made", tmp_path / "filled"
    with mount_points.making([str(there), str(made), str(filled)], records=records):
        assert made.is_dir()
    (filled / "file").touch()
    mount_points.remove_unused(lambda: True, records=records)
    assert made.is_dir()
    mount_points.remove_unused(lambda: False, records=records)
    assert (there.is_dir(), made.exists(), filled.is_dir()) == (True, False, True)
    (filled / "file").unlink()
    mount_points.remove_unused(lambda: False, records=records)
    assert not filled.exists()


def test_a_directory_whose_owner_lives_is_not_stale(tmp_path: Path) -> None:
    sweep.claim(tmp_path / "mine")
    assert sweep.clean_stale(tmp_path) == []
    assert (tmp_path / "mine").is_dir()


def test_a_directory_whose_owner_is_gone_is_removed(tmp_path: Path) -> None:
    base_dir = tmp_path / "old"
    base_dir.mkdir()
    (base_dir / sweep.OWNER_FILE).write_text("999999999 1\n")
    assert sweep.clean_stale(tmp_path) == [base_dir]
    assert not base_dir.exists()


def test_the_root_directory_is_a_mount_and_a_plain_one_is_not(tmp_path: Path) -> None:
    assert list_mounts(tmp_path) == []
    assert "/" in list_mounts(Path("/"))
