"""What the agent of a node may do: the Node authorizer and NodeRestriction."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import STRATEGIC
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal, wait_until_allowed

LEASES = "kube-node-lease"


def mirror(node: NodeUnderTest, name: str = "mirror", **metadata: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
    made = pod(name, nodeName=node.name, tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    made["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "h"},
        "ownerReferences": [owner],
        **metadata,
    }
    return made


def refused(call: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(StatusError) as error:
        call(*arguments, **more)
    assert refusal(error)[:2] == (403, "Forbidden")
    return error.value.message


def test_a_new_node_is_tainted_until_it_is_ready(node: NodeUnderTest) -> None:
    assert node.value["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert node.value["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert node.value["status"]["nodeInfo"]["kubeletVersion"] == ""


def test_a_node_makes_only_itself(node: NodeUnderTest) -> None:
    message = refused(node.client.create, "nodes", {"metadata": {"name": "other"}})
    assert message == f'nodes "other" is forbidden: node "{node.name}" is not allowed to modify node "other"'


def test_a_node_reads_only_itself(node: NodeUnderTest) -> None:
    who = f'User "system:node:{node.name}" cannot'
    message = refused(node.client.get, "nodes", "other")
    assert message == (
        f'nodes "other" is forbidden: {who} get resource "nodes" in API group "" at the cluster scope: node '
        f"'{node.name}' cannot read 'other', only its own Node object"
    )
    message = refused(node.client.list, "nodes")
    assert message == (
        f'nodes is forbidden: {who} list resource "nodes" in API group "" at the cluster scope: node '
        f"'{node.name}' cannot read all nodes, only its own Node object"
    )
    listed = node.client.list("nodes", fieldSelector=f"metadata.name={node.name}")
    assert len(listed["items"]) == 1


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"spec": {"taints": []}}, 'node "NODE" is not allowed to modify taints'),
        (
            {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}},
            "is not allowed to modify labels: node-restriction.kubernetes.io/a",
        ),
        (
            {"metadata": {"labels": {"kubernetes.io/a": "b"}}},
            "is not allowed to modify labels: kubernetes.io/a",
        ),
        (
            {
                "metadata": {
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]
                }
            },
            'node "NODE" is not allowed to modify ownerReferences',
        ),
    ],
)
def test_a_node_leaves_alone_what_others_decide(
    node: NodeUnderTest, patch: dict[str, Any], problem: str
) -> None:
    message = refused(node.client.patch, "nodes", node.name, patch)
    assert message == f'nodes "{node.name}" is forbidden: ' + problem.replace("NODE", node.name)


def test_a_node_sets_its_own_labels_and_annotations(node: NodeUnderTest) -> None:
    labels = {"runtime.kubeletx.io/a": "ready", "kubernetes.io/hostname": "h", "kubelet.kubernetes.io/x": "y"}
    patch = {"metadata": {"labels": labels, "annotations": {"a": "b"}}}
    assert node.client.patch("nodes", node.name, patch)["metadata"]["labels"] == labels


def test_the_status_of_a_node_changes_no_spec(node: NodeUnderTest) -> None:
    patch = {
        "spec": {"unschedulable": True},
        "metadata": {"labels": {"a": "b"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1"}},
    }
    changed = node.client.patch("nodes", node.name, patch, subresource="status", kind=STRATEGIC)
    assert "unschedulable" not in changed["spec"]
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert changed["status"]["conditions"][0]["lastHeartbeatTime"] is None
    assert changed["status"]["allocatable"] == {"cpu": "1"}


def test_a_change_of_a_node_drops_its_status(admin: ApiClient, node: NodeUnderTest) -> None:
    node.client.patch("nodes", node.name, {"status": {"capacity": {"cpu": "1"}}}, subresource="status")
    value = admin.get("nodes", node.name)
    changed = admin.replace("nodes", {**value, "spec": {"unschedulable": True}, "status": {}})
    assert changed["spec"]["unschedulable"] is True
    assert changed["status"]["capacity"] == {"cpu": "1"}


def test_empty_texts_and_sizes_of_a_status_are_not_stored(node: NodeUnderTest) -> None:
    condition = {"type": "example.com/Healthy", "status": "True", "reason": "", "message": ""}
    status = {"conditions": [condition], "images": [{"names": ["a"], "sizeBytes": 0}]}
    changed = node.client.patch("nodes", node.name, {"status": status}, "", "status", STRATEGIC)
    assert changed["status"]["images"] == [{"names": ["a"]}]
    (stored,) = (one for one in changed["status"]["conditions"] if one["type"] == condition["type"])
    assert not {"reason", "message"} & stored.keys()


def test_a_node_deletes_no_node(node: NodeUnderTest) -> None:
    assert "cannot delete resource" in refused(node.client.delete, "nodes", node.name)


def test_a_node_has_one_lease(node: NodeUnderTest) -> None:
    made = node.client.create("leases", {"metadata": {"name": node.name}, "spec": {}}, LEASES)
    made["spec"] = {"holderIdentity": node.name, "leaseDurationSeconds": 40}
    assert node.client.replace("leases", made)["spec"]["holderIdentity"] == node.name
    same = "can only access node lease with the same name as the requesting node"
    assert refused(node.client.get, "leases", "other", LEASES).endswith(same)
    assert refused(node.client.create, "leases", {"metadata": {"name": "other"}}, LEASES).endswith(same)
    assert refused(node.client.list, "leases", LEASES).endswith(
        "can only get, create, update, patch, or delete a node lease"
    )
    assert refused(node.client.get, "leases", node.name, "default").endswith(
        'can only access leases in the "kube-node-lease" system namespace'
    )


def test_a_node_lists_its_own_pods(admin: ApiClient, node: NodeUnderTest, namespace: str) -> None:
    admin.create("pods", pod("mine", nodeName=node.name), namespace)
    admin.create("pods", pod("other", nodeName="other"), namespace)
    items = node.client.list("pods", fieldSelector=f"spec.nodeName={node.name}")["items"]
    assert [item["metadata"]["name"] for item in items] == ["mine"]
    only = "can only list/watch pods with spec.nodeName field selector"
    assert refused(node.client.list, "pods").endswith(only)
    assert refused(node.client.list, "pods", fieldSelector="spec.nodeName=other").endswith(only)
    none = f"no relationship found between node '{node.name}' and this object"
    assert refused(node.client.get, "pods", "other", namespace).endswith(none)


def test_a_node_reads_what_its_pods_name(admin: ApiClient, node: NodeUnderTest, namespace: str) -> None:
    admin.create("secrets", {"metadata": {"name": "s"}}, namespace)
    admin.create("configmaps", {"metadata": {"name": "c"}}, namespace)
    made = pod("one", nodeName=node.name, volumes=[{"name": "v", "secret": {"secretName": "s"}}])
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "c"}}]
    none = f"no relationship found between node '{node.name}' and this object"
    assert refused(node.client.get, "secrets", "s", namespace).endswith(none)
    admin.create("pods", made, namespace)
    for plural, name in (("secrets", "s"), ("configmaps", "c"), ("configmaps", "kube-root-ca.crt")):
        wait_until_allowed(node, plural, name, namespace)
        listed = node.client.list(plural, namespace, fieldSelector=f"metadata.name={name}")
        assert len(listed["items"]) == 1
    assert refused(node.client.list, "secrets", namespace).endswith("No Object name found")
    assert refused(node.client.list, "persistentvolumes").endswith(
        "can only get individual resources of this type"
    )


def test_a_node_makes_and_deletes_its_mirror_pods(node: NodeUnderTest, namespace: str) -> None:
    spec = node.client.create("pods", mirror(node), namespace)["spec"]
    assert "volumes" not in spec
    assert "serviceAccountName" not in spec
    node.client.delete("pods", "mirror", namespace, gracePeriodSeconds=0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"annotations": {}}, 'pod does not have "kubernetes.io/config.mirror" annotation'),
        ({"ownerReferences": []}, "can only create pods with an owner reference set to itself"),
    ],
)
def test_a_node_makes_no_other_pods(
    node: NodeUnderTest, namespace: str, change: dict[str, Any], problem: str
) -> None:
    assert problem in refused(node.client.create, "pods", mirror(node, **change), namespace)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"nodeName": "other"}, "can only create pods with spec.nodeName set to itself"),
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a mirror pod may not reference secrets",
        ),
        (
            {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
            "can not create pods that reference configmaps",
        ),
    ],
)
def test_a_mirror_pod_gets_nothing_of_the_cluster(
    node: NodeUnderTest, namespace: str, spec: dict[str, Any], problem: str
) -> None:
    made = mirror(node)
    made["spec"] |= spec
    assert problem in refused(node.client.create, "pods", made, namespace)


@pytest.mark.parametrize("field", ["uid", "controller", "blockOwnerDeletion"])
def test_the_owner_of_a_mirror_pod_is_the_node(node: NodeUnderTest, namespace: str, field: str) -> None:
    made = mirror(node)
    owner = made["metadata"]["ownerReferences"][0]
    owner[field] = {"uid": "other", "controller": False, "blockOwnerDeletion": True}[field]
    words = {
        "uid": "UID mismatch: expected other",
        "controller": "controller",
        "blockOwnerDeletion": "must not set",
    }
    assert words[field] in refused(node.client.create, "pods", made, namespace)


def test_a_node_leaves_pods_of_others_alone(admin: ApiClient, node: NodeUnderTest, namespace: str) -> None:
    admin.create("pods", pod("other", nodeName="other"), namespace)
    itself = "with spec.nodeName set to itself"
    assert refused(node.client.delete, "pods", "other", namespace).endswith(f"can only delete pods {itself}")
    message = refused(
        node.client.patch, "pods", "other", {"status": {"phase": "Failed"}}, namespace, "status"
    )
    assert message.endswith(f"can only update pod status for pods {itself}")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "other", "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/other/eviction"
    assert refused(node.client.ask, "POST", path, eviction).endswith(f"can only evict pods {itself}")


def test_a_node_writes_statuses_and_annotations_but_no_labels(
    admin: ApiClient, node: NodeUnderTest, namespace: str
) -> None:
    admin.create("pods", pod("mine", nodeName=node.name), namespace)
    patch = {"metadata": {"annotations": {"a": "b"}}, "status": {"phase": "Running"}}
    changed = node.client.patch("pods", "mine", patch, namespace, "status", STRATEGIC)
    assert (changed["metadata"]["annotations"], changed["status"]["phase"]) == ({"a": "b"}, "Running")
    labels = {"metadata": {"labels": {"a": "b"}}}
    message = refused(node.client.patch, "pods", "mine", labels, namespace, "status")
    assert message.endswith(f'node "{node.name}" cannot update labels through pod status')
    assert 'cannot patch resource "pods"' in refused(node.client.patch, "pods", "mine", labels, namespace)


def test_a_node_has_one_csi_node(node: NodeUnderTest) -> None:
    node.client.create("csinodes", {"metadata": {"name": node.name}, "spec": {"drivers": []}})
    same = "can only access CSINode with the same name as the requesting node"
    assert refused(node.client.get, "csinodes", "other").endswith(same)


@pytest.mark.parametrize(
    ("plural", "allowed"), [("services", True), ("runtimeclasses", True), ("namespaces", False)]
)
def test_what_every_node_may_list(node: NodeUnderTest, plural: str, allowed: bool) -> None:
    if allowed:
        assert node.client.list(plural)["kind"].endswith("List")
    else:
        assert "at the cluster scope" in refused(node.client.list, plural)
