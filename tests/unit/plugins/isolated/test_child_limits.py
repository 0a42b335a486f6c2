"""The cgroup of a child, on both versions of cgroups, and its weight for the OOM killer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.plugins.isolated.process import child_cgroups
from kubeletx.runtimes.isolation.process import protect_agent


def make_trees(path: Path, version: int) -> CgroupTrees:
    if version == 2:
        for directory in (path, path / "node", path / "node/kubeletx-plugins"):
            directory.mkdir(exist_ok=True)
            (directory / "cgroup.controllers").write_text("cpu memory pids")
            (directory / "cgroup.subtree_control").write_text("cpu memory pids")
        return CgroupTrees(path)
    for controller in ("cpu", "memory", "pids"):
        (path / controller).mkdir()
        (path / controller / "cgroup.procs").touch()
    return CgroupTrees(path)


LIMITS = {
    1: {"memory/{}/memory.limit_in_bytes": "1048576", "pids/{}/pids.max": "20", "cpu/{}/cpu.shares": "5219"},
    2: {"{}/memory.max": "1048576", "{}/pids.max": "20", "{}/cpu.weight": "200"},
}


@pytest.mark.parametrize("version", [1, 2])
def test_a_child_joins_a_cgroup_with_the_configured_limits(tmp_path: Path, version: int) -> None:
    trees = make_trees(tmp_path, version)
    settings = PluginSettings(memory_limit_bytes=1 << 20, process_limit=20, cpu_weight=200)
    child_cgroups(trees, "/node", settings)("Acme_Disks").join(4711)
    path = "node/kubeletx-plugins/acme-disks"
    for file, value in LIMITS[version].items():
        assert (tmp_path / file.format(path)).read_text() == value
    for root in trees.roots:
        assert (root / path / "cgroup.procs").read_text() == "4711"


@pytest.mark.parametrize(("agent", "child"), [("-999", "0\n"), ("0", "0"), ("500", "500")])
def test_the_oom_killer_does_not_spare_a_child_for_the_agents_sake(
    tmp_path: Path, agent: str, child: str
) -> None:
    for name in ("self", "4711"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "oom_score_adj").write_text(agent)
    protect_agent(4711, tmp_path)
    assert (tmp_path / "4711" / "oom_score_adj").read_text() == child
