"""Cgroups at start: made, left out with one warning, or refused when they were asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from msgspec.structs import replace

from kubeletx.agent.config.tree import AgentConfig, CgroupSettings
from kubeletx.agent.host.pod_cgroups import check_cgroup_version, make_pod_cgroups, may_make_cgroups
from kubeletx.api import InvalidConfig, ObjectRef
from kubeletx.kube.types.core import Container, ResourceRequirements
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.testing import FakeEventSink
from tests.unit.agent.agent_model import AgentModel, FileTrees, a_pod

NODE = ObjectRef(kind="Node", name="node")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A unified tree."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    return tmp_path


@pytest.fixture
def context(tmp_path: Path) -> NodeContext:
    return NodeContext(agent_id="a", node_name="n", root_dir=tmp_path, pod_logs_dir=tmp_path)


def forbid(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """As if this user might not write there; root, who runs tests too, may write everywhere."""
    monkeypatch.setattr(os, "access", lambda at, _mode: Path(at) != path)


async def no_thread(function: Any, /, *args: Any) -> Any:
    return function(*args)


def made(config: AgentConfig, context: NodeContext, tree: Path) -> object | None:
    return make_pod_cgroups(config, context, cast("Any", no_thread), CgroupTrees(tree), lambda: "cgroupfs")


def test_an_agent_that_may_make_cgroups_makes_them(tree: Path, context: NodeContext) -> None:
    assert made(AgentConfig(), context, tree) is not None


def test_none_are_made_when_they_are_off(tree: Path, context: NodeContext) -> None:
    assert made(AgentConfig(cgroups=CgroupSettings(per_qos=False)), context, tree) is None


@pytest.mark.parametrize("root", ["", "/", "/mine/agent"])
def test_without_the_right_pods_get_none_and_that_is_reported_once(
    tree: Path, context: NodeContext, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    forbid(monkeypatch, tree)
    config = AgentConfig(cgroups=CgroupSettings(root=root))
    assert not may_make_cgroups(config.cgroups, CgroupTrees(tree))  # so nothing is shared with a kubelet
    with structlog.testing.capture_logs() as said:
        assert made(config, context, tree) is None
    (line,) = said
    assert (line["event"], line["err"]) == (
        "Pods get no cgroups of their own",
        f"no right to make cgroups in {tree}",
    )


def test_a_root_of_one_s_own_in_a_foreign_tree_is_enough(
    tree: Path, context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "mine").mkdir()
    forbid(monkeypatch, tree)
    assert made(AgentConfig(cgroups=CgroupSettings(root="/mine")), context, tree) is not None


def test_what_was_asked_for_and_cannot_be_is_refused(
    tree: Path, context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, tree)
    config = AgentConfig(origins={"cgroups.per_qos": "flag --cgroups-per-qos"})
    with pytest.raises(InvalidConfig, match=r"cgroupsPerQOS: no right to make cgroups in .*; run as root"):
        made(config, context, tree)


@pytest.mark.parametrize(
    ("version", "fails", "reasons"), [(2, True, []), (2, False, []), (1, False, ["CgroupV1"])]
)
def test_cgroup_v1_is_reported(version: int, fails: bool, reasons: list[str]) -> None:
    sink = FakeEventSink()
    check_cgroup_version(CgroupSettings(fail_cgroup_v1=fails), version, sink, NODE)
    assert sink.reasons() == reasons


def test_cgroup_v1_is_refused_on_request() -> None:
    sink = FakeEventSink()
    with pytest.raises(InvalidConfig, match="failCgroupV1: this machine has cgroup v1"):
        check_cgroup_version(CgroupSettings(fail_cgroup_v1=True), 1, sink, NODE)
    assert sink.reasons() == []


async def test_a_restart_of_the_agent_does_not_starve_burstable_pods(
    agent: AgentModel, tmp_path: Path
) -> None:
    trees = FileTrees(tmp_path / "cgroup")
    weight = trees.root / "kubepods/burstable/cpu.weight"
    agent.host = replace(agent.host, trees=trees)
    agent.configure("cgroups", per_qos=True)
    burstable = Container(
        name="main", image="busybox", resources=ResourceRequirements(requests={"cpu": "300m"})
    )
    pod = a_pod()
    async with agent.running():
        await agent.apply(replace(pod, spec=replace(pod.spec, containers=(burstable,))))
        assert weight.read_text() == "12"
    async with agent.running():
        assert weight.read_text() == "12"
