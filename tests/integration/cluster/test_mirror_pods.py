"""Static pods in a cluster: each is shown by a mirror pod, which never rules it (S7, ST11).

Each test runs against the double and, where its binaries are, against a real kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.clusters import (
    ApiServer,
    ClusterNode,
    Json,
    cluster_agent,
    is_ready,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
MIRROR = "kubernetes.io/config.mirror"


@pytest.fixture
def node(api: ApiServer, make_agent: MakeAgent) -> ClusterNode:
    """A node of its own for each test."""
    return cluster_agent(api, make_agent)


def container_id(pod: Json) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"])


def static(node: ClusterNode, manifests: Path, name: str, **fields: Any) -> Json:
    """A static pod and its mirror, Running and Ready in the API."""
    put_manifest(manifests, pod_manifest(name, **fields))
    return node.wait_running(f"{name}-{node.name}")


def test_a_static_pod_is_shown_with_its_status(node: ClusterNode, manifests: Path) -> None:
    mirror = static(node, manifests, "web")
    local = node.agent.pod(f"web-{node.name}")
    assert local is not None
    notes = mirror["metadata"]["annotations"]
    assert notes[MIRROR] == notes["kubernetes.io/config.hash"] == local.metadata.uid
    assert mirror["metadata"]["uid"] != local.metadata.uid
    (owner,) = mirror["metadata"]["ownerReferences"]
    found = node.wait_ready()
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", found["metadata"]["uid"], True)
    assert mirror["status"]["podIP"] == local.status.pod_ip
    assert notes["kubeletx.io/bound-runtime"] == "containerd-a"


@pytest.mark.parametrize("grace", [0, 30])
def test_deleting_the_mirror_stops_nothing(node: ClusterNode, manifests: Path, grace: int) -> None:
    before = static(node, manifests, "kept")
    name = before["metadata"]["name"]
    node.admin.delete("pods", name, namespace="default", gracePeriodSeconds=grace)
    uid = before["metadata"]["uid"]
    after = node.wait(name, lambda one: one["metadata"]["uid"] != uid and is_ready(one), "another mirror")
    assert container_id(after) == container_id(before)


def test_a_changed_manifest_is_another_pod_and_another_mirror(node: ClusterNode, manifests: Path) -> None:
    before = static(node, manifests, "other")
    manifest = pod_manifest("other")
    manifest["metadata"]["labels"] = {"version": "two"}
    put_manifest(manifests, manifest)
    after = node.wait(
        before["metadata"]["name"],
        lambda one: one["metadata"].get("labels") == {"version": "two"} and is_ready(one),
        "the mirror of the new pod",
    )
    assert after["metadata"]["annotations"][MIRROR] != before["metadata"]["annotations"][MIRROR]
    assert container_id(after) != container_id(before)


def test_a_removed_manifest_takes_its_mirror_along(node: ClusterNode, manifests: Path) -> None:
    mirror = static(node, manifests, "gone")
    for file in manifests.iterdir():
        file.unlink()
    node.wait_gone(mirror["metadata"]["name"])


def test_mirrors_of_pods_that_vanished_while_the_agent_was_away_go(
    node: ClusterNode, manifests: Path
) -> None:
    first = static(node, manifests, "stays")
    gone = static(node, manifests, "leaves")
    node.agent.kill()
    for file in manifests.iterdir():
        if "leaves" in file.name:
            file.unlink()
    node.agent.start()
    node.wait_gone(gone["metadata"]["name"])
    found = node.find(first["metadata"]["name"])
    assert found is not None
    assert found["metadata"]["uid"] == first["metadata"]["uid"]


def test_an_applied_pod_has_a_mirror_that_follows_its_changes(
    node: ClusterNode, manifests: Path, tmp_path: Path
) -> None:
    manifest = pod_manifest("applied")
    path = tmp_path / "applied.yaml"

    def apply() -> None:
        put_manifest(path.parent, manifest)
        (written,) = path.parent.glob("applied*")
        node.agent.cli("apply", "-f", str(written)).check_returncode()

    apply()
    before = node.wait_running("applied")
    manifest["metadata"]["labels"] = {"version": "two"}
    apply()
    after = node.wait(
        "applied",
        lambda one: one["metadata"].get("labels") == {"version": "two"} and is_ready(one),
        "new labels",
    )
    assert container_id(after) == container_id(before)
    node.agent.cli("delete", "pod", "applied", "--grace-period=1").check_returncode()
    node.wait_gone("applied")


def test_static_pods_run_before_the_api_server_does(
    api: ApiServer, make_agent: MakeAgent, manifests: Path
) -> None:
    node = cluster_agent(api, make_agent)
    node.agent.stop()
    api.stop()
    try:
        put_manifest(manifests, pod_manifest("alone"))
        node.agent.start()
        node.agent.wait_for(f"alone-{node.name}")
    finally:
        api.start()
    until(lambda: node.find(f"alone-{node.name}") is not None, "the mirror, once there is an API server")
    node.wait_running(f"alone-{node.name}")
