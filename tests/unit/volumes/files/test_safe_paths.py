from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.volumes.files import safe_paths
from kubeletx.volumes.files.safe_paths import (
    make_directories_beneath,
    make_private,
    open_beneath,
    remove_tree,
)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    (tmp_path / "secret").write_text("secret")
    return path


def read(base: Path, relative: str) -> str:
    with open_beneath(base, relative, os.O_RDONLY) as fd:
        return os.read(fd, 100).decode()


def test_a_link_inside_the_volume_is_followed(volume):
    (volume / "real").write_text("text")
    (volume / "link").symlink_to("real")
    assert read(volume, "link") == "text"


@pytest.mark.parametrize("link", ["../secret", "/etc/passwd", "a/../../secret", "/proc/self/root/etc/passwd"])
def test_no_link_leads_out_of_the_volume(volume, link):
    (volume / "a").mkdir()
    (volume / "link").symlink_to(link)
    with pytest.raises(OSError, match=r"cross-device|Invalid cross"):
        read(volume, "link")


@pytest.mark.parametrize("relative", ["../secret", "/etc/passwd", "a/../../secret"])
def test_no_name_leads_out_of_the_volume(volume, relative):
    (volume / "a").mkdir()
    with pytest.raises(OSError, match="cross-device"):
        read(volume, relative)


def test_without_openat2_links_are_not_followed_at_all(volume, monkeypatch):
    monkeypatch.setattr(safe_paths, "_OPENAT2", 100_000)  # no such system call
    (volume / "dir").mkdir()
    (volume / "dir" / "file").write_text("text")
    (volume / "link").symlink_to("dir")
    assert read(volume, "dir/file") == "text"
    for name in ("link/file", "../secret"):
        with pytest.raises(OSError):
            read(volume, name)


def test_missing_directories_are_made_with_the_mode_whatever_the_umask(volume):
    old = os.umask(0o077)
    try:
        make_directories_beneath(volume, "a/b/c", 0o2775)
    finally:
        os.umask(old)
    assert [stat.S_IMODE((volume / one).stat().st_mode) for one in ("a", "a/b", "a/b/c")] == [0o2775] * 3


def test_no_directory_is_made_outside_over_a_link(volume, tmp_path):
    (volume / "out").symlink_to("..")
    with pytest.raises(OSError, match="cross-device"):
        make_directories_beneath(volume, "out/made", 0o755)
    assert not (tmp_path / "made").exists()


def test_private_directories_are_all_closed_to_others(tmp_path):
    make_private(tmp_path / "x" / "y")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "x" / "y").stat().st_mode) == 0o750


def test_removing_what_is_not_there_succeeds(tmp_path):
    remove_tree(tmp_path / "nothing")


def test_links_are_removed_and_not_followed(volume, tmp_path):
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    (volume / "link").symlink_to(outside)
    (volume / "deep").mkdir()
    (volume / "deep" / "link").symlink_to(outside)
    remove_tree(volume)
    assert not volume.exists()
    assert (outside / "kept").is_dir()


def test_a_link_in_place_of_the_tree_is_removed_alone(volume, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(volume)
    remove_tree(link)
    assert not link.is_symlink()
    assert volume.is_dir()


def test_a_very_deep_tree_is_removed(volume):
    fd = os.open(volume, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    remove_tree(volume)
    assert not volume.exists()


def test_names_like_our_own_do_not_hinder_removal(volume):
    for name in (".kubeletx-removing-0", ".kubeletx-removing-1"):
        (volume / name / "x" / "y").mkdir(parents=True)
    (volume / "a" / "b" / "c").mkdir(parents=True)
    (volume / ".kubeletx-removing-2").write_text("")
    remove_tree(volume)
    assert not volume.exists()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text("ab/", min_size=1, max_size=9), st.sampled_from("dfl")), max_size=12))
def test_any_tree_is_removed_whole(tmp_path_factory, entries):
    top = tmp_path_factory.mktemp("tree") / "top"
    top.mkdir()
    for name, kind in entries:
        path = top / name.strip("/")
        if (
            not name.strip("/")
            or path.is_symlink()
            or any(one.is_symlink() or one.is_file() for one in path.parents)
        ):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            continue
        if kind == "d":
            path.mkdir()
        elif kind == "f":
            path.write_text("x")
        else:
            path.symlink_to("/")
    remove_tree(top)
    assert not top.exists()
