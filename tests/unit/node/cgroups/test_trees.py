"""Cgroups of every tree: cpusets that concurrent creates make, and removal with frozen processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import Internal
from kubeletx.node.cgroups.trees import CgroupTrees


def test_frozen_processes_are_thawed_so_that_they_end_by_the_kill(tmp_path: Path) -> None:
    for name in ("memory", "freezer"):
        (tmp_path / name / "pod" / "container").mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").write_text("")
    state = tmp_path / "freezer" / "pod" / "container" / "freezer.state"
    state.write_text("FROZEN")
    with pytest.raises(Internal, match="cannot be removed"):  # a file of this directory is in the way
        CgroupTrees(tmp_path).remove("pod", wait_seconds=0)
    assert state.read_text() == "THAWED"


def test_a_cpuset_below_one_that_a_concurrent_create_has_just_made_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").write_text("")
    for path, cpus in (("cpuset", "0-1\n"), ("cpuset/plugins", "\n"), ("cpuset/plugins/one", "\n")):
        (tmp_path / path).mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            (tmp_path / path / name).write_text(cpus)
        for name in ("tasks", "cgroup.procs"):
            (tmp_path / path / name).write_text("")
    CgroupTrees(tmp_path).create("plugins/one")
    assert (tmp_path / "cpuset/plugins/one/cpuset.cpus").read_text() == "0-1\n"
    assert (tmp_path / "cpuset/plugins/one/cpuset.mems").read_text() == "0-1\n"
