"""managedFields: who wrote which field last."""

from __future__ import annotations

from typing import Any

from kubeletx_testing.apiserver import ApiClient
from kubeletx_testing.apiserver.client import STRATEGIC
from testing.tests.compared.api_cluster import NodeUnderTest, pod


def managers(value: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """(manager, subresource) to what it owns."""
    entries = value["metadata"]["managedFields"]
    assert {entry["operation"] for entry in entries} == {"Update"}
    assert {entry["fieldsType"] for entry in entries} == {"FieldsV1"}
    assert all(entry["time"].endswith("Z") for entry in entries)
    return {(entry["manager"], entry.get("subresource", "")): entry["fieldsV1"] for entry in entries}


def test_a_client_that_says_nothing_is_called_by_its_user_agent(admin: ApiClient, namespace: str) -> None:
    made = admin.create("configmaps", {"metadata": {"name": "one"}, "data": {"a": "1"}}, namespace)
    assert "f:a" in managers(made)["kubeletx-test", ""]["f:data"]


def test_a_field_belongs_to_who_changed_it_last(admin: ApiClient, namespace: str) -> None:
    admin.create("configmaps", {"metadata": {"name": "one"}, "data": {"a": "1", "b": "1"}}, namespace)
    patch = {"data": {"a": "2"}}
    by_manager = managers(admin.patch("configmaps", "one", patch, namespace, fieldManager="other"))
    assert "f:a" in by_manager["other", ""]["f:data"]
    assert "f:a" not in by_manager["kubeletx-test", ""]["f:data"]
    assert "f:b" in by_manager["kubeletx-test", ""]["f:data"]


def test_conditions_are_owned_one_by_one_and_by_subresource(admin: ApiClient, node: NodeUnderTest) -> None:
    name = f"{node.name}-labelled"
    admin.create("nodes", {"metadata": {"name": name, "labels": {"a": "b"}}})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    admin.patch("nodes", name, ready, subresource="status", kind=STRATEGIC)
    other = {"status": {"conditions": [{"type": "Other", "status": "True"}]}}
    changed = admin.patch("nodes", name, other, "", "status", STRATEGIC, fieldManager="other")
    owned = managers(changed)["other", "status"]["f:status"]["f:conditions"]
    assert [key for key in owned if key.startswith("k:")] == ['k:{"type":"Other"}']


def test_an_object_that_was_made_without_fields_has_no_managers(admin: ApiClient, namespace: str) -> None:
    admin.create("configmaps", {"metadata": {"name": "empty"}}, namespace)
    changed = admin.patch("configmaps", "empty", {"data": {"a": "1"}}, namespace)
    assert "managedFields" not in changed["metadata"]


def test_a_write_that_changes_nothing_leaves_no_trace(admin: ApiClient, namespace: str) -> None:
    made = admin.create("pods", pod("one"), namespace)
    labels = {"metadata": {"labels": {"a": "b"}}}
    first = admin.patch("pods", "one", labels, namespace, fieldManager="first")
    second = admin.patch("pods", "one", labels, namespace, fieldManager="second")
    assert ("second", "") not in managers(second)
    versions = [value["metadata"]["resourceVersion"] for value in (made, first, second)]
    assert versions[0] != versions[1] == versions[2]
