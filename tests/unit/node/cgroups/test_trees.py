"""Removal of cgroups with frozen processes."""

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
