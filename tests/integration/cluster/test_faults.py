"""An API server that misbehaves: what runs goes on, and what the cluster needs happens in the end. The double only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import PrivateAgent
from tests.integration.support.clusters import ClusterNode, cluster_agent, main_status
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as one:
        yield one


@pytest.fixture
def node(double: ApiServerDouble, make_agent: MakeAgent) -> ClusterNode:
    return cluster_agent(double, make_agent, manifest_dir=None)


def test_watches_that_are_cut_anywhere_lose_no_pod(node: ClusterNode, double: ApiServerDouble) -> None:
    """Inside of the line and after it; each cut doubles the time to the next watch. The reflector has more places."""
    for after_bytes in (100, 1_000_000):
        double.cut_watches("pods", after_bytes)
        node.apply(f"cut-{after_bytes}")
        node.wait_running(f"cut-{after_bytes}")
    double.cut_watches("pods", 0)
    for after_bytes in (100, 1_000_000):
        node.admin.delete("pods", f"cut-{after_bytes}", namespace="default")
        node.wait_gone(f"cut-{after_bytes}")


def test_a_forgotten_history_is_listed_again(node: ClusterNode, double: ApiServerDouble) -> None:
    node.apply("first")
    before = node.wait_running("first")
    double.stop()
    double.forget_history()
    double.start()
    node.apply("second")
    node.wait_running("second")
    assert main_status(node.wait_running("first")) == main_status(before)


def test_a_storm_of_errors_ends_with_the_right_status(node: ClusterNode, double: ApiServerDouble) -> None:
    for code in (500, 503, 429):
        double.faults.fail(code, times=1, path="/status")
        double.faults.fail(code, times=1, path="/api/v1/pods")
    double.faults.drop(times=1, path="/status")
    double.cut_watches("pods")
    node.apply("stormy")
    node.wait_running("stormy")
    node.admin.delete("pods", "stormy", namespace="default")
    node.wait_gone("stormy")


def test_a_server_that_takes_seconds_for_each_answer_is_served_all_the_same(
    node: ClusterNode, double: ApiServerDouble
) -> None:
    slow = double.faults.delay(1.5, path=f"/{node.name}")  # node, status and lease
    slow_pods = double.faults.delay(1.5, path="/pods")
    double.cut_watches()
    node.apply("patient")
    node.wait_running("patient")
    node.admin.delete("pods", "patient", namespace="default")
    node.wait_gone("patient")
    assert slow.hits
    assert slow_pods.hits
    assert "no answer" not in node.agent.log_path.read_text()


def test_a_server_that_hangs_is_given_up_and_found_again(node: ClusterNode, double: ApiServerDouble) -> None:
    node.apply("web")
    before = node.wait_running("web")
    double.faults.freeze()
    holds_on = node.agent.wait_for("web")
    double.faults.thaw()
    node.apply("later")
    node.wait_running("later")
    assert main_status(node.wait_running("web")) == main_status(before)
    assert holds_on.status.phase == "Running"


def test_pods_that_a_restored_backup_never_had_are_stopped(
    node: ClusterNode, double: ApiServerDouble
) -> None:
    node.apply("old")
    before = node.wait_running("old")
    backup = double.backup()
    node.apply("new")
    node.wait_running("new")
    double.restore(backup)
    node.wait_gone("new")
    assert main_status(node.wait_running("old")) == main_status(before)


def test_a_hundred_pods_of_other_nodes_are_never_asked_for(
    node: ClusterNode, double: ApiServerDouble
) -> None:
    node.apply("mine")
    node.wait_running("mine")
    listed = double.requests.all(user=f"system:node:{node.name}", path="/api/v1/pods", verb="list")
    assert listed
    assert all(one.query.get("fieldSelector") == f"spec.nodeName={node.name}" for one in listed)


def test_a_node_at_rest_asks_for_little(node: ClusterNode, double: ApiServerDouble) -> None:
    node.apply("web")
    node.wait_running("web")
    until(lambda: not _writes(double), "the last status is told")
    assert len(_writes(double)) <= 3


def _writes(double: ApiServerDouble) -> list[str]:
    """Writes other than the lease since the last look."""
    import time

    double.requests.clear()
    time.sleep(3)
    return [one.path for one in double.requests.all() if one.method != "GET" and "leases" not in one.path]
