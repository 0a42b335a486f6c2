"""Deleting: grace, preconditions, finalizers, eviction."""

from __future__ import annotations

from datetime import datetime

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import pod, refusal


def bound(admin: ApiClient, namespace: str, name: str = "one", **metadata: object) -> str:
    made = pod(name, nodeName="node-d")
    made["metadata"] |= metadata
    uid: str = admin.create("pods", made, namespace)["metadata"]["uid"]
    return uid


def exists(admin: ApiClient, namespace: str, name: str = "one") -> bool:
    return any(item["metadata"]["name"] == name for item in admin.list("pods", namespace)["items"])


def test_a_pod_on_a_node_stays_until_its_grace_is_zero(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace)
    marked = admin.delete("pods", "one", namespace)["metadata"]
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (30, 2)
    assert "deletionTimestamp" in admin.get("pods", "one", namespace)["metadata"]
    admin.delete("pods", "one", namespace, gracePeriodSeconds=0)
    assert not exists(admin, namespace)


def test_grace_gets_shorter_and_never_longer(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace)
    first = admin.delete("pods", "one", namespace, gracePeriodSeconds=20)["metadata"]
    longer = admin.delete("pods", "one", namespace, gracePeriodSeconds=60)["metadata"]
    assert longer == first
    shorter = admin.delete("pods", "one", namespace, gracePeriodSeconds=5)["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    ends = [datetime.fromisoformat(value["deletionTimestamp"]) for value in (first, shorter)]
    assert (ends[0] - ends[1]).total_seconds() == 15
    assert shorter["generation"] == first["generation"]


def test_a_pod_without_a_node_goes_at_once(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one"), namespace)
    admin.delete("pods", "one", namespace)
    assert not exists(admin, namespace)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_goes_at_once(admin: ApiClient, namespace: str, phase: str) -> None:
    bound(admin, namespace)
    admin.patch("pods", "one", {"status": {"phase": phase}}, namespace, "status")
    admin.delete("pods", "one", namespace)
    assert not exists(admin, namespace)


def test_another_uid_is_refused(admin: ApiClient, namespace: str) -> None:
    uid = bound(admin, namespace)
    with pytest.raises(StatusError) as error:
        admin.delete("pods", "one", namespace, gracePeriodSeconds=0, preconditions={"uid": "other"})
    assert refusal(error) == (
        409,
        "Conflict",
        f'Operation cannot be fulfilled on Pod "one": the UID in the precondition (other) does not match the UID in '
        f"record ({uid}). The object might have been deleted and then recreated",
    )
    admin.delete("pods", "one", namespace, gracePeriodSeconds=0, preconditions={"uid": uid})
    assert not exists(admin, namespace)


def test_another_version_is_refused(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace)
    with pytest.raises(StatusError) as error:
        admin.delete("pods", "one", namespace, preconditions={"resourceVersion": "1"})
    assert refusal(error)[:2] == (409, "Conflict")


def test_finalizers_hold_a_pod_without_grace(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace, finalizers=["example.com/hold"])
    marked = admin.delete("pods", "one", namespace, gracePeriodSeconds=0)["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 0
    assert exists(admin, namespace)
    admin.patch("pods", "one", {"metadata": {"finalizers": None}}, namespace)
    assert not exists(admin, namespace)


def test_an_object_that_is_being_deleted_gets_no_new_finalizers(admin: ApiClient, namespace: str) -> None:
    metadata = {"name": "one", "finalizers": ["example.com/hold"]}
    admin.create("configmaps", {"metadata": metadata}, namespace)
    admin.delete("configmaps", "one", namespace)
    change = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    with pytest.raises(StatusError) as error:
        admin.patch("configmaps", "one", change, namespace)
    assert refusal(error) == (
        422,
        "Invalid",
        'ConfigMap "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being '
        'deleted, found new finalizers []string{"example.com/more"}',
    )
    admin.patch("configmaps", "one", {"metadata": {"finalizers": None}}, namespace)


@pytest.mark.parametrize(
    ("finalizers", "field"),
    [
        (["hold"], "metadata.finalizers[0]"),
        (["example.com/-"], "metadata.finalizers"),
        (["orphan", "foregroundDeletion"], "metadata.finalizers"),
    ],
)
def test_finalizers_have_names_with_a_domain(
    admin: ApiClient, namespace: str, finalizers: list[str], field: str
) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("configmaps", {"metadata": {"name": "one", "finalizers": finalizers}}, namespace)
    assert refusal(error)[:2] == (422, "Invalid")
    assert [cause["field"] for cause in (error.value.details or {})["causes"]] == [field]


def test_a_pod_in_its_grace_outlives_its_finalizers(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace, finalizers=["example.com/hold"])
    admin.delete("pods", "one", namespace)
    admin.patch("pods", "one", {"metadata": {"finalizers": None}}, namespace)
    assert exists(admin, namespace)


def test_other_objects_are_answered_with_a_status(admin: ApiClient, namespace: str) -> None:
    uid = admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)["metadata"]["uid"]
    answer = admin.delete("configmaps", "one", namespace)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "one", "kind": "configmaps", "uid": uid}


def test_an_eviction_deletes_with_grace(admin: ApiClient, namespace: str) -> None:
    bound(admin, namespace)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "one", "namespace": namespace},
    }
    answer = admin.ask("POST", f"/api/v1/namespaces/{namespace}/pods/one/eviction", eviction)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert admin.get("pods", "one", namespace)["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_collection_is_deleted_by_its_labels(admin: ApiClient, namespace: str) -> None:
    admin.create("configmaps", {"metadata": {"name": "one", "labels": {"a": "b"}}}, namespace)
    admin.create("configmaps", {"metadata": {"name": "two"}}, namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert admin.send("DELETE", path, query={"labelSelector": "a=b"}).code == 200
    assert [item["metadata"]["name"] for item in admin.list("configmaps", namespace)["items"]] == [
        "kube-root-ca.crt",
        "two",
    ]
