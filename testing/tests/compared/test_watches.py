"""Watches: order, selectors, bookmarks, ends."""

from __future__ import annotations

from kubeletx_testing.apiserver import ApiClient
from testing.tests.compared.api_cluster import Watch, pod, version_now


def label(admin: ApiClient, namespace: str, name: str, value: str) -> None:
    admin.patch("configmaps", name, {"metadata": {"labels": {"l": value}}}, namespace)


def test_a_watch_goes_on_from_a_version(admin: ApiClient, namespace: str, watch: Watch) -> None:
    version = version_now(admin, "configmaps", namespace)
    admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)
    watching = watch(admin, "configmaps", namespace, resourceVersion=version)
    assert watching.names(1) == [("ADDED", "one")]
    admin.patch("configmaps", "one", {"data": {"a": "b"}}, namespace)
    admin.delete("configmaps", "one", namespace)
    assert watching.names(3) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watching.take(3)]
    assert versions == sorted(set(versions))


def test_an_object_comes_and_goes_with_its_labels(admin: ApiClient, namespace: str, watch: Watch) -> None:
    admin.create("configmaps", {"metadata": {"name": "one", "labels": {"l": "0"}}}, namespace)
    version = version_now(admin, "configmaps", namespace)
    watching = watch(admin, "configmaps", namespace, resourceVersion=version, labelSelector="l=1")
    label(admin, namespace, "one", "1")
    admin.patch("configmaps", "one", {"data": {"a": "b"}}, namespace)
    label(admin, namespace, "one", "0")
    admin.delete("configmaps", "one", namespace)
    admin.create("configmaps", {"metadata": {"name": "two", "labels": {"l": "1"}}}, namespace)
    assert watching.names(4) == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("DELETED", "one"),
        ("ADDED", "two"),
    ]
    assert watching.take(3)[2]["object"]["metadata"]["labels"] == {"l": "1"}


def test_a_pod_comes_to_the_watch_of_its_node_when_it_is_bound(
    admin: ApiClient, namespace: str, watch: Watch
) -> None:
    version = version_now(admin, "pods", namespace)
    selector = "spec.nodeName=node-w"
    watching = watch(admin, "pods", namespace, resourceVersion=version, fieldSelector=selector)
    admin.create("pods", pod("one"), namespace)
    binding = {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "node-w"}}
    admin.ask("POST", f"/api/v1/namespaces/{namespace}/pods/one/binding", binding)
    (event,) = watching.take(1)
    assert event["type"] == "ADDED"
    assert event["object"]["spec"]["nodeName"] == "node-w"
    conditions = event["object"]["status"]["conditions"]
    assert [(condition["type"], condition["status"]) for condition in conditions] == [
        ("PodScheduled", "True")
    ]


def test_version_zero_begins_with_what_exists(admin: ApiClient, namespace: str, watch: Watch) -> None:
    admin.create("secrets", {"metadata": {"name": "one"}}, namespace)
    version_now(admin, "secrets", namespace)
    watching = watch(admin, "secrets", namespace, resourceVersion="0", fieldSelector="metadata.name=one")
    assert watching.names(1) == [("ADDED", "one")]


def test_a_watch_ends_at_its_time_out(admin: ApiClient, namespace: str, watch: Watch) -> None:
    version = version_now(admin, "pods", namespace)
    watching = watch(admin, "pods", namespace, resourceVersion=version, timeoutSeconds="1")
    assert watching.end() == []


def test_a_version_from_the_future_is_waited_for(admin: ApiClient, namespace: str, watch: Watch) -> None:
    watching = watch(admin, "pods", namespace, resourceVersion="99999999", timeoutSeconds="1")
    admin.create("pods", pod("one"), namespace)
    assert watching.end() == []


def test_a_deletion_with_grace_is_a_change_first(admin: ApiClient, namespace: str, watch: Watch) -> None:
    version = version_now(admin, "pods", namespace)
    watching = watch(admin, "pods", namespace, resourceVersion=version)
    admin.create("pods", pod("one", nodeName="node-w"), namespace)
    admin.delete("pods", "one", namespace)
    admin.delete("pods", "one", namespace, gracePeriodSeconds=0)
    seen = [
        (event["type"], event["object"]["metadata"].get("deletionGracePeriodSeconds"))
        for event in watching.take(4)
    ]
    assert seen == [("ADDED", None), ("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]
