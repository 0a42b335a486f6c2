"""Paths and programs of another mount namespace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.namespace import MountNamespace

from kubeletx.api import InvalidConfig


@pytest.fixture
def other(tmp_path: Path) -> MountNamespace:
    (tmp_path / "7" / "root").mkdir(parents=True)
    return MountNamespace(7, tmp_path)


def test_the_agents_own_namespace_needs_no_program() -> None:
    own = MountNamespace()
    assert own.command(["mount", "x"]) == ["mount", "x"]
    assert own.path("/a/b") == Path("/a/b")
    assert own.table_path == Path("/proc/self/mountinfo")
    own.check()
    with own.open_root() as descriptor:
        assert os.readlink(f"/proc/self/fd/{descriptor}") == "/"


def test_another_namespace_is_entered_with_nsenter(other: MountNamespace, tmp_path: Path) -> None:
    assert other.command(["umount", "/x"]) == [
        "nsenter",
        f"--mount={tmp_path}/7/ns/mnt",
        "--",
        "umount",
        "/x",
    ]
    assert other.path("/a/b") == tmp_path / "7" / "root" / "a" / "b"
    assert other.table_path == tmp_path / "7" / "mountinfo"


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
