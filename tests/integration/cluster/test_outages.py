"""A node behind a bad line, and an API server that comes back older than it was. The double and a real one.

The agent reaches the API server through a `Line`, whose other end is real TLS; what is cut are bytes of TLS records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import Line, write_kubeconfig
from tests.integration.support.bench import Bench
from tests.integration.support.clusters import (
    ApiServer,
    ClusterNode,
    main_status,
    ready_namespace,
)
from tests.integration.support.clusters import restore_point as restore_point_of
from tests.integration.support.survival import until

NAME = "far-away"


@pytest.fixture(scope="module")
def line(api: ApiServer) -> Iterator[Line]:
    with Line(api.url) as one:
        yield one


@pytest.fixture(scope="module")
def started_node(
    api: ApiServer, line: Line, make_bench: Callable[..., Bench], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterNode]:
    """One node for all tests, at the end of the line. Its lease is renewed every 3 s; a silent server is noticed then."""
    directory: Path = tmp_path_factory.mktemp("node")
    config = directory / "config.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 12\n"
    )
    kubeconfig = write_kubeconfig(directory / "kubeconfig", line.url, api.ca_file, api.node_pair(NAME))
    ready_namespace(api.admin)
    bench = make_bench(node_name=NAME, flags=[f"--kubeconfig={kubeconfig}", f"--config={config}"])
    node = ClusterNode(api, bench.agent)
    node.wait_ready()
    yield node
    bench.agent.stop()


@pytest.fixture
def node(started_node: ClusterNode) -> ClusterNode:
    """The node, whose agent starts again: its watches would remember the cuts of the test before, and wait longer."""
    started_node.agent.restart()
    return started_node


def test_connections_that_are_cut_at_any_byte_lose_no_pod(node: ClusterNode, line: Line) -> None:
    counts = (0, 1, 4, 5, 6, 300, 2000)  # before, inside and behind the head of a TLS record, and far inside
    for number, count in enumerate(counts):
        line.cut_after(count)
        node.apply(f"cut-{number}")
        if number % 3 == 2:
            node.wait_running(f"cut-{number}")
    for number in range(len(counts)):
        node.wait_running(f"cut-{number}")
    for number, count in enumerate(counts):
        line.cut_after(count)
        node.admin.delete("pods", f"cut-{number}", namespace="default")
    for number in range(len(counts)):
        node.wait_gone(f"cut-{number}")


def test_answers_in_trickles_arrive(node: ClusterNode, line: Line) -> None:
    line.trickle(piece_bytes=400, piece_seconds=0.02)
    try:
        line.cut_after(0)  # so that everything is listed again
        node.apply("slow")
        node.wait_running("slow")
        node.admin.delete("pods", "slow", namespace="default")
        node.wait_gone("slow")
    finally:
        line.trickle(0, 0.0)


def test_connections_that_hang_without_an_end_are_made_again(node: ClusterNode, line: Line) -> None:
    node.apply("here")
    before = node.wait_running("here")
    closed_before = times_closed(node)
    line.hold()
    node.apply("hidden")
    until(lambda: times_closed(node) > closed_before, "the agent closes its connections")
    assert is_ready_here(node, "here")
    line.release()
    node.wait_running("hidden")
    assert main_status(node.wait_running("here")) == main_status(before)
    for name in ("here", "hidden"):
        node.admin.delete("pods", name, namespace="default")
        node.wait_gone(name)


@pytest.mark.timeout(300)  # a real one starts three times
def test_an_api_server_that_is_set_back_to_an_older_state_is_told_what_became_of_its_pods(
    node: ClusterNode, api: ApiServer
) -> None:
    wait_for_word = ["sh", "-c", "until [ -e /word ]; do sleep 0.1; done"]
    node.apply("stays")
    node.apply("ends", container={"command": wait_for_word}, restartPolicy="Never")
    node.apply("gone")
    for name in ("stays", "ends", "gone"):
        node.wait_running(name)
    stays = main_status(node.wait_running("stays"))
    restore = restore_point_of(api)
    node.wait_ready()
    assert node.agent.cli("exec", "ends", "--", "touch", "/word").returncode == 0
    node.wait("ends", lambda pod: pod["status"]["phase"] == "Succeeded", "Succeeded")
    node.admin.delete("pods", "gone", namespace="default")
    node.wait_gone("gone")
    node.apply("new")
    node.wait_running("new")
    restore()
    node.agent.wait_gone("new")
    node.wait("ends", lambda pod: pod["status"]["phase"] == "Succeeded", "Succeeded once more")
    node.wait_running("gone")  # the cluster wants it, so it lives again
    assert main_status(node.wait_running("stays")) == stays
    node.apply("new")
    node.wait_running("new")
    before = renewed_at(node)
    until(lambda: renewed_at(node) > before, "a lease that is renewed")


def times_closed(node: ClusterNode) -> int:
    """How often the agent has closed all its connections."""
    return node.agent.log_path.read_text().count("Closed all connections to the API server")


def is_ready_here(node: ClusterNode, name: str) -> bool:
    """As the node itself sees it."""
    pod = node.agent.pod(name)
    return pod is not None and pod.status.phase == "Running"


def renewed_at(node: ClusterNode) -> str:
    """The time in the node's lease."""
    found: str = node.admin.get("leases", NAME, namespace="kube-node-lease")["spec"]["renewTime"]
    return found
