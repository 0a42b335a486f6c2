"""A pod's files: links to its logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from kubeletx.api import PodUid, UnitId
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec
from kubeletx.pods.logs.directories import PodDirectories
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.volumes.preparer import VolumePreparer
from tests.unit.pods.environment_model import make_node

P = ParamSpec("P")
T = TypeVar("T")

POD = Pod(metadata=ObjectMeta(name="web", namespace="shop", uid=PodUid("u1")), spec=PodSpec())


@pytest.fixture
def node(tmp_path: Path) -> NodeContext:
    return make_node(root_dir=tmp_path / "root", pod_logs_dir=tmp_path / "logs")


async def at_once(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def files(node: NodeContext, links: Path | None) -> PodFiles:
    volumes = VolumePreparer(root_dir=node.root_dir, blocking=at_once, fields=node.fields())
    return PodFiles(node, PodDirectories(node, links_dir=links), volumes, at_once)


async def test_a_started_container_is_linked_for_collectors_until_its_log_is_gone(
    node: NodeContext, tmp_path: Path
) -> None:
    links = tmp_path / "links"
    one = files(node, links)
    await one.create(POD)
    log = node.log_directory(POD) / "main" / "0.log"
    log.parent.mkdir()
    log.write_text("line\n")
    await one.link_log(POD, "main", 0, UnitId("abc"))
    link = links / "web_shop_main-abc.log"
    assert link.read_text() == "line\n"
    await one.remove_log(POD, "main", 0)
    await one.remove(POD)
    assert list(links.iterdir()) == []


async def test_no_link_and_a_link_that_cannot_be_made_stop_nothing(node: NodeContext, tmp_path: Path) -> None:
    await files(node, None).link_log(POD, "main", 0, UnitId("abc"))
    (tmp_path / "file").write_text("")
    await files(node, tmp_path / "file" / "links").link_log(POD, "main", 0, UnitId("abc"))
