"""A guardian reboots a node of a cluster: it is drained before, and uncordoned afterwards, with the node's own identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import PrivateAgent
from tests.integration.support.clusters import ApiServer, ClusterNode, cluster_agent
from tests.integration.support.guardian import REBOOTED, LabGuardian
from tests.integration.support.survival import until


@pytest.fixture
def guardian(tmp_path: Path) -> Iterator[LabGuardian]:
    one = LabGuardian(tmp_path / "edge")
    yield one
    one.end()


def is_cordoned(node: ClusterNode) -> bool:
    found = node.node()
    return found is not None and bool(found["spec"].get("unschedulable"))


def test_a_node_is_cordoned_and_drained_for_a_reboot_and_uncordoned_after_it(
    api: ApiServer, guardian: LabGuardian, make_agent: Callable[..., PrivateAgent]
) -> None:
    flag = f"--health-run-dir={guardian.run}"
    node = cluster_agent(api, make_agent, manifest_dir=None, flags=(flag,))
    node.wait_ready()
    until(lambda: guardian.agent.get("Contact") == 1, "contact with the API server")
    guardian.order("reboot", "--reason", "test")
    until(lambda: is_cordoned(node), "a cordoned node")
    assert guardian.process.wait(120) == REBOOTED
    guardian.start()
    until(lambda: not is_cordoned(node), "an uncordoned node")
