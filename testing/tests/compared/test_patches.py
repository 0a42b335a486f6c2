"""Patches, above all those of statuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import JSON_PATCH, MERGE, STRATEGIC
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal

FIRST = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
    "hostIP": "10.0.0.9",
    "podIPs": [{"ip": "10.0.0.1"}],
    "containerStatuses": [
        {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
    ],
}


@pytest.fixture
def running(admin: ApiClient, namespace: str) -> str:
    """A namespace with pod ``one``, whose status is FIRST."""
    admin.create("pods", pod("one", nodeName="node-p"), namespace)
    change(admin, namespace, {"status": FIRST})
    return namespace


def change(admin: ApiClient, namespace: str, patch: Any, kind: str = STRATEGIC) -> dict[str, Any]:
    return admin.patch("pods", "one", patch, namespace, "status", kind)


def conditions(value: dict[str, Any]) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in value["status"]["conditions"]]


def test_a_status_is_completed(admin: ApiClient, running: str) -> None:
    status = admin.get("pods", "one", running)["status"]
    assert status["podIP"] == "10.0.0.1"
    assert status["qosClass"] == "BestEffort"
    assert status["conditions"][0]["lastTransitionTime"] is None
    assert status["containerStatuses"][0]["lastState"] == {}
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": None}}


def test_conditions_are_merged_by_type_in_the_given_order(admin: ApiClient, running: str) -> None:
    patch = {
        "$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}, {"type": "New"}],
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "New", "status": "True"}],
    }
    changed = change(admin, running, {"status": patch})
    assert conditions(changed) == [("Initialized", "True"), ("Ready", "False"), ("New", "True")]


def test_without_an_order_what_is_patched_comes_first(admin: ApiClient, running: str) -> None:
    changed = change(admin, running, {"status": {"conditions": [{"type": "New", "status": "True"}]}})
    assert conditions(changed) == [("New", "True"), ("Ready", "True"), ("Initialized", "True")]


def test_an_item_is_deleted_by_its_key(admin: ApiClient, running: str) -> None:
    patch = {"podIPs": [{"$patch": "delete", "ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "podIP": "10.0.0.2"}
    changed = change(admin, running, {"status": patch})
    assert changed["status"]["podIPs"] == [{"ip": "10.0.0.2"}]


def test_a_list_is_replaced_as_a_whole(admin: ApiClient, running: str) -> None:
    patch = {"conditions": [{"$patch": "replace"}, {"type": "Only", "status": "True"}]}
    assert conditions(change(admin, running, {"status": patch})) == [("Only", "True")]


def test_lists_without_a_key_are_replaced(admin: ApiClient, running: str) -> None:
    changed = change(admin, running, {"status": {"containerStatuses": []}})
    assert changed["status"].get("containerStatuses", []) == []


def test_a_merge_patch_replaces_lists_and_removes_nulls(admin: ApiClient, running: str) -> None:
    patch = {"status": {"conditions": [{"type": "Only", "status": "True"}], "hostIP": None}}
    changed = change(admin, running, patch, MERGE)
    assert conditions(changed) == [("Only", "True")]
    assert "hostIP" not in changed["status"]


def test_a_json_patch_is_done_step_by_step(admin: ApiClient, running: str) -> None:
    steps = [
        {"op": "test", "path": "/status/phase", "value": "Running"},
        {"op": "replace", "path": "/status/phase", "value": "Succeeded"},
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/a": "b"}},
    ]
    changed = change(admin, running, steps, JSON_PATCH)
    assert changed["status"]["phase"] == "Succeeded"
    assert changed["metadata"]["annotations"] == {"example.com/a": "b"}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/status/phase", "value": "Failed"},
        {"op": "replace", "path": "/status/nothing/there", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_is_invalid(
    admin: ApiClient, running: str, step: dict[str, Any]
) -> None:
    with pytest.raises(StatusError) as error:
        change(admin, running, [step], JSON_PATCH)
    assert refusal(error)[:2] == (422, "Invalid")


def test_a_status_of_a_wrong_type_is_invalid(admin: ApiClient, running: str) -> None:
    with pytest.raises(StatusError) as error:
        change(admin, running, {"status": {"phase": 3}})
    assert refusal(error)[:2] == (422, "Invalid")


def test_another_media_type_is_refused(admin: ApiClient, running: str) -> None:
    with pytest.raises(StatusError) as error:
        change(admin, running, {}, "text/plain")
    assert error.value.code == 415


def test_a_patch_with_an_old_version_is_a_conflict(admin: ApiClient, running: str) -> None:
    with pytest.raises(StatusError) as error:
        change(admin, running, {"metadata": {"resourceVersion": "1"}, "status": {"message": "m"}})
    assert refusal(error)[:2] == (409, "Conflict")


def test_the_status_subresource_changes_no_spec_and_no_owners(admin: ApiClient, running: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    patch = {"spec": {"nodeName": "other"}, "metadata": {"ownerReferences": [owner], "labels": {"a": "b"}}}
    changed = change(admin, running, patch)
    assert changed["spec"]["nodeName"] == "node-p"
    assert "ownerReferences" not in changed["metadata"]
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert changed["metadata"]["generation"] == 1


def test_the_main_resource_changes_no_status(admin: ApiClient, running: str) -> None:
    admin.patch("pods", "one", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}}, running)
    found = admin.get("pods", "one", running)
    assert (found["status"]["phase"], found["metadata"]["labels"]) == ("Running", {"a": "b"})


def test_few_fields_of_a_spec_may_change(admin: ApiClient, running: str) -> None:
    changed = admin.patch("pods", "one", {"spec": {"activeDeadlineSeconds": 100}}, running)
    assert changed["metadata"]["generation"] == 2
    with pytest.raises(StatusError) as error:
        admin.patch("pods", "one", {"spec": {"hostname": "other"}}, running)
    assert error.value.code == 422
    assert "pod updates may not change fields other than" in error.value.message


def test_ephemeral_containers_are_added_and_never_changed(admin: ApiClient, running: str) -> None:
    def add(image: str) -> dict[str, Any]:
        patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": image}]}}
        return admin.patch("pods", "one", patch, running, "ephemeralcontainers", STRATEGIC)

    (added,) = add("busybox")["spec"]["ephemeralContainers"]
    assert (added["name"], added["imagePullPolicy"]) == ("debug", "Always")
    assert admin.get("pods", "one", running)["metadata"]["generation"] == 2
    with pytest.raises(StatusError) as error:
        add("other")
    assert 'existing ephemeral containers "debug" may not be changed' in error.value.message


def test_a_resize_keeps_the_class_and_needs_a_node_that_can(admin: ApiClient, running: str) -> None:
    patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    with pytest.raises(StatusError) as error:
        admin.patch("pods", "one", patch, running, "resize", STRATEGIC)
    assert "Pod QOS Class may not change as a result of resizing" in error.value.message
    assert "Pod running on node without support for resize" in error.value.message


def test_a_pod_as_a_whole_is_resized_where_its_node_declares_that_it_can(
    admin: ApiClient, node: NodeUnderTest, namespace: str
) -> None:
    feature = "InPlacePodLevelResourcesVerticalScaling"
    room = {"cpu": "4", "memory": "4Gi"}
    node.client.patch("nodes", node.name, {"status": {"capacity": room}}, subresource="status")
    made = pod("whole", nodeName=node.name)
    made["spec"]["resources"] = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    created = admin.create("pods", made, namespace)
    assert created["spec"]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    patch = {"spec": {"resources": {"requests": {"cpu": "2"}}}}
    with pytest.raises(StatusError) as error:
        admin.patch("pods", "whole", patch, namespace, "resize", STRATEGIC)
    problem = f'pod update requires features {feature} which are not available on node "{node.name}"'
    assert refusal(error) == (403, "Forbidden", f'pods "whole" is forbidden: {problem}')
    node.client.patch("nodes", node.name, {"status": {"declaredFeatures": [feature]}}, subresource="status")
    changed = admin.patch("pods", "whole", patch, namespace, "resize", STRATEGIC)
    assert changed["spec"]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}


def test_an_init_container_is_resized_where_its_node_declares_that_it_can(
    admin: ApiClient, node: NodeUnderTest, namespace: str
) -> None:
    feature = "InPlacePodVerticalScalingInitContainers"
    room = {"cpu": "4", "memory": "4Gi"}
    node.client.patch("nodes", node.name, {"status": {"capacity": room}}, subresource="status")
    made = pod("begins", nodeName=node.name)
    first = {"name": "first", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    made["spec"]["initContainers"] = [first]
    admin.create("pods", made, namespace)
    patch = {"spec": {"initContainers": [{"name": "first", "resources": {"requests": {"cpu": "2"}}}]}}
    with pytest.raises(StatusError) as error:
        admin.patch("pods", "begins", patch, namespace, "resize", STRATEGIC)
    assert f"pod update requires features {feature}" in error.value.message
    node.client.patch("nodes", node.name, {"status": {"declaredFeatures": [feature]}}, subresource="status")
    changed = admin.patch("pods", "begins", patch, namespace, "resize", STRATEGIC)
    assert changed["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}


@pytest.mark.parametrize(
    ("cpu", "problem"),
    [
        ("4", ""),
        ("1500m", "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500"),
        (None, 'node "nowhere" not found'),
    ],
)
def test_a_resize_needs_room_on_its_node(
    admin: ApiClient, node: NodeUnderTest, namespace: str, cpu: str | None, problem: str
) -> None:
    node.client.patch("nodes", node.name, {"status": {"capacity": {"cpu": cpu or "1"}}}, subresource="status")
    made = pod("two", nodeName=node.name if cpu else "nowhere")
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    admin.create("pods", made, namespace)
    patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    if problem:
        with pytest.raises(StatusError) as error:
            admin.patch("pods", "two", patch, namespace, "resize", STRATEGIC)
        assert refusal(error) == (403, "Forbidden", f'pods "two" is forbidden: {problem}')
        return
    changed = admin.patch("pods", "two", patch, namespace, "resize", STRATEGIC)
    assert changed["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert changed["metadata"]["generation"] == 2
