"""What a node may write of persistent volume claims: parts of the status, for pods of its own."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, Grant, StatusError
from kubeletx_testing.apiserver.client import MERGE
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal


@pytest.fixture
def claim(admin: ApiClient, node: NodeUnderTest, namespace: str) -> str:
    """A claim that a pod of the node uses; its name."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    admin.create("persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": spec}, namespace)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    admin.create("pods", pod("one", nodeName=node.name, volumes=volumes), namespace)
    return "data"


def patch(
    node: NodeUnderTest, namespace: str, change: dict[str, Any], part: str = "status"
) -> dict[str, Any]:
    return node.client.patch("persistentvolumeclaims", "data", change, namespace, part, MERGE)


def test_capacity_and_conditions_are_the_nodes(node: NodeUnderTest, namespace: str, claim: str) -> None:
    condition = {"type": "FileSystemResizePending", "status": "True"}
    change = {"status": {"capacity": {"storage": "2Gi"}, "conditions": [condition]}}
    status = patch(node, namespace, change)["status"]
    assert status["capacity"] == {"storage": "2Gi"}
    assert status["conditions"][0]["type"] == "FileSystemResizePending"


@pytest.mark.parametrize(
    "change", [{"status": {"phase": "Lost"}}, {"metadata": {"labels": {"a": "b"}}, "status": {}}]
)
def test_nothing_else_is(node: NodeUnderTest, namespace: str, claim: str, change: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as error:
        patch(node, namespace, change)
    assert refusal(error)[:2] == (403, "Forbidden")
    words = (
        f'node "{node.name}" is not allowed to update fields other than status.quantity and status.conditions'
    )
    assert words in error.value.message


def test_a_claim_of_other_nodes_is_not_theirs(
    server: Any, node: NodeUnderTest, namespace: str, claim: str
) -> None:
    other = NodeUnderTest(f"{node.name}-other", server.node_client(f"{node.name}-other"))
    with pytest.raises(StatusError) as error:
        patch(other, namespace, {"status": {"capacity": {"storage": "2Gi"}}})
    assert refusal(error)[:2] == (403, "Forbidden")
    assert f"no relationship found between node '{other.name}' and this object" in error.value.message


def test_the_claim_itself_is_not_written(node: NodeUnderTest, namespace: str, claim: str) -> None:
    with pytest.raises(StatusError) as error:
        patch(node, namespace, {"metadata": {"labels": {"a": "b"}}}, "")
    assert refusal(error)[:2] == (403, "Forbidden")
    assert "can only get individual resources of this type" in error.value.message


def test_not_even_with_another_right(
    server: Any, admin: ApiClient, node: NodeUnderTest, namespace: str, claim: str
) -> None:
    server.grant(
        Grant(
            subject=f"system:node:{node.name}",
            verbs=("patch",),
            resources=("persistentvolumeclaims",),
            namespaces=(namespace,),
        )
    )
    for _ in range(50):  # RBAC of a real server counts a moment later
        with pytest.raises(StatusError) as error:
            patch(node, namespace, {"metadata": {"labels": {"a": "b"}}}, "")
        if "may only update PVC status" in error.value.message:
            return
    raise AssertionError(error.value.message)
