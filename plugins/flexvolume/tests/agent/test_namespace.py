"""Paths and programs of another mount namespace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.namespace import MountNamespace, NamespacePrograms
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.linux.blank import PROBE
from plugins.flexvolume.tests.fake_programs import FakePrograms


@pytest.fixture
def other(tmp_path: Path) -> MountNamespace:
    (tmp_path / "7" / "root").mkdir(parents=True)
    return MountNamespace(7, tmp_path)


def test_the_agents_own_namespace_needs_no_program() -> None:
    own = MountNamespace()
    assert own.command(["mount", "x"]) == ["mount", "x"]
    assert own.path("/a/b") == Path("/a/b")
    assert own.find_mount("/proc") is not None
    assert own.find_mount("/proc/none") is None
    own.check()
    with own.open_directory("/proc", "/proc/sys") as descriptor:
        assert os.readlink(f"/proc/self/fd/{descriptor}") == "/proc/sys"


def test_another_namespace_is_entered_with_nsenter(other: MountNamespace, tmp_path: Path) -> None:
    assert other.command(["umount", "/x"]) == [
        "nsenter",
        f"--mount={tmp_path}/7/ns/mnt",
        "--",
        "umount",
        "/x",
    ]
    assert other.path("/a/b") == tmp_path / "7" / "root" / "a" / "b"
    (tmp_path / "7" / "mountinfo").write_text("36 22 7:7 / /g/pv rw - ext4 /dev/loop7 rw\n")
    assert [mount.target for mount in other.table("pv")] == ["/g/pv"]
    assert other.table("other") == ()


def test_a_process_that_does_not_exist_is_refused(other: MountNamespace) -> None:
    with pytest.raises(InvalidConfig, match=r"--mount-namespace-of: 7: No such file.*hostPID"):
        other.check()


@pytest.mark.parametrize(
    ("links", "path", "expected"),
    [
        ({}, "/a/b", "/a/b"),
        ({"a": "/data/k"}, "/a/b", "/data/k/b"),
        ({"a": "data"}, "/a/b", "/data/b"),
        ({"x/a": "../y"}, "/x/a/b", "/y/b"),
        ({"x/a": "../../../../y"}, "/x/a", "/y"),
        ({"a": "/b", "b": "c"}, "/a", "/c"),
        ({}, "/", "/"),
    ],
)
def test_links_are_resolved_within_the_namespace(
    other: MountNamespace, tmp_path: Path, links: dict[str, str], path: str, expected: str
) -> None:
    for name, text in links.items():
        link = tmp_path / "7" / "root" / name
        link.parent.mkdir(exist_ok=True, parents=True)
        link.symlink_to(text)
    assert other.real_path(path) == expected


def test_a_circle_of_links_is_an_error(other: MountNamespace, tmp_path: Path) -> None:
    (tmp_path / "7" / "root" / "a").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        other.real_path("/a")


async def test_programs_of_a_volume_run_in_the_namespace_and_the_probe_outside(
    other: MountNamespace, tmp_path: Path, programs: FakePrograms
) -> None:
    programs.answer("nsenter", "out", code=3)
    volume = NamespacePrograms(Commands(tmp_path), other, "pv")
    result = await volume.run(["mkfs.ext4", "/dev/x"], 10)
    enter = f"nsenter --mount={tmp_path}/7/ns/mnt --"
    assert (result.exit_code, result.out, programs.calls) == (3, "out", [f"{enter} mkfs.ext4 /dev/x"])
    found = await volume.probe("/dev/none", is_interrupted=True)
    assert found.name == f"{' '.join(PROBE)} {tmp_path}/7/root/dev/none interrupted"
    assert (found.exit_code, found.out) == (1, "it cannot be read: No such file or directory")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Root directory of `other`, with a kubelet's root directory."""
    root = tmp_path / "7" / "root"
    (root / "kubelet" / "pods").mkdir(parents=True)
    (root / "outside").mkdir()
    return root


def walk(namespace: MountNamespace, path: str, *, make: bool = False) -> str:
    """Return the real path that `open_directory` reaches."""
    with namespace.open_directory("/kubelet", path, make=make) as found:
        return os.readlink(f"/proc/self/fd/{found}")


def test_a_directory_is_opened_and_made(other: MountNamespace, root: Path) -> None:
    assert walk(other, "/kubelet/pods/u/volumes", make=True) == str(root / "kubelet/pods/u/volumes")
    assert (root / "kubelet/pods/u").stat().st_mode & 0o777 == 0o750
    assert walk(other, "/kubelet/pods") == str(root / "kubelet/pods")


def test_a_root_may_be_a_link(other: MountNamespace, root: Path) -> None:
    (root / "kubelet").rename(root / "real")
    (root / "kubelet").symlink_to("real")
    assert walk(other, "/kubelet/pods") == str(root / "real/pods")


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("link", ["kubelet/pods/u", "kubelet/pods/u/volumes", "kubelet/pods/u/volumes/v"])
def test_a_link_below_the_root_is_refused(other: MountNamespace, root: Path, link: str, make: bool) -> None:
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(root / "outside")
    with pytest.raises(Unavailable, match="is a link"):
        walk(other, "/kubelet/pods/u/volumes/v", make=make)
    assert list((root / "outside").iterdir()) == []


def test_a_missing_directory_is_named(other: MountNamespace, root: Path) -> None:
    with pytest.raises(Unavailable, match="directory /kubelet/pods/u: No such file"):
        walk(other, "/kubelet/pods/u")


def test_directories_are_made_and_removed_in_the_namespace(other: MountNamespace, root: Path) -> None:
    other.make_directory("/kubelet", "/kubelet/plugins/pv")
    other.check_directory("/kubelet", "/kubelet/plugins/pv")
    assert (root / "kubelet/plugins/pv").is_dir()
    for path in ("/kubelet/plugins", "/kubelet/plugins/pv", "/kubelet/plugins/pv"):
        other.remove("/kubelet", path)  # the first is not empty
    assert list((root / "kubelet/plugins").iterdir()) == []


def test_a_file_for_a_device_is_made_and_removed_while_it_is_empty(other: MountNamespace, root: Path) -> None:
    for _ in range(2):
        other.make_file("/kubelet", "/kubelet/pods/pv")
    assert (root / "kubelet/pods/pv").is_file()
    (root / "kubelet/pods/pv").write_text("data")
    other.remove("/kubelet", "/kubelet/pods/pv")
    assert (root / "kubelet/pods/pv").read_text() == "data"
    (root / "kubelet/pods/pv").write_text("")
    other.remove("/kubelet", "/kubelet/pods/pv")
    assert not (root / "kubelet/pods/pv").exists()


def test_no_file_is_made_through_a_link(other: MountNamespace, root: Path) -> None:
    (root / "kubelet/pods/link").symlink_to(root / "outside")
    (root / "kubelet/pods/pv").symlink_to(root / "outside/pv")
    for path in ("/kubelet/pods/link/pv", "/kubelet/pods/pv"):
        with pytest.raises(Unavailable, match="is a link"):
            other.make_file("/kubelet", path)
        other.remove("/kubelet", path)
    assert (root / "kubelet/pods/pv").is_symlink()
    assert list((root / "outside").iterdir()) == []
