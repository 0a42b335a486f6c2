"""PersistentVolumes and their claims: what makes them invalid, what never changes, what holds them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import MERGE
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal, wait_until_allowed

ONE_GIB = {"storage": "1Gi"}
FLEX = {"driver": "example.com/ramdisk", "options": {"a": "b"}}
PV = "kubernetes.io/pv-protection"
PVC = "kubernetes.io/pvc-protection"
IMMUTABLE = (
    "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName"
)


def volume(name: str, **spec: Any) -> dict[str, Any]:
    """A PersistentVolume. A field of `spec` that is None is left out."""
    whole = {"capacity": ONE_GIB, "accessModes": ["ReadWriteOnce"], "flexVolume": FLEX, **spec}
    return {
        "metadata": {"name": name},
        "spec": {key: part for key, part in whole.items() if part is not None},
    }


def claim(name: str = "data", **spec: Any) -> dict[str, Any]:
    """A claim. A field of `spec` that is None is left out."""
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": ONE_GIB}, **spec}
    return {
        "metadata": {"name": name},
        "spec": {key: part for key, part in whole.items() if part is not None},
    }


def causes(error: pytest.ExceptionInfo[StatusError]) -> set[tuple[str, str]]:
    """Field and reason of each violated rule."""
    assert refusal(error)[:2] == (422, "Invalid")
    return {(cause["field"], cause["reason"]) for cause in (error.value.details or {})["causes"]}


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"accessModes": None}, "spec.accessModes", "FieldValueRequired"),
        ({"accessModes": ["Any"]}, "spec.accessModes", "FieldValueNotSupported"),
        (
            {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            "spec.accessModes",
            "FieldValueForbidden",
        ),
        ({"capacity": None}, "spec.capacity", "FieldValueRequired"),
        ({"capacity": {"cpu": "1"}}, "spec.capacity", "FieldValueNotSupported"),
        ({"capacity": {"storage": "0"}}, "spec.capacity[storage]", "FieldValueInvalid"),
        (
            {"persistentVolumeReclaimPolicy": "Keep"},
            "spec.persistentVolumeReclaimPolicy",
            "FieldValueNotSupported",
        ),
        ({"volumeMode": "Raw"}, "spec.volumeMode", "FieldValueNotSupported"),
        ({"flexVolume": None}, "spec", "FieldValueRequired"),
        ({"local": {"path": "/x"}}, "spec.local", "FieldValueForbidden"),
        ({"flexVolume": {"options": {}}}, "spec.flexVolume.driver", "FieldValueRequired"),
        (
            {"flexVolume": {**FLEX, "options": {"kubernetes.io/fsType": "xfs"}}},
            "spec.flexVolume.options[kubernetes.io/fsType]",
            "FieldValueInvalid",
        ),
    ],
)
def test_a_volume_that_makes_no_sense_is_invalid(
    admin: ApiClient, namespace: str, spec: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("persistentvolumes", volume(namespace, **spec))
    assert (field, reason) in causes(error)


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"accessModes": None}, "spec.accessModes", "FieldValueRequired"),
        ({"accessModes": ["Any"]}, "spec.accessModes", "FieldValueNotSupported"),
        ({"resources": None}, "spec.resources[storage]", "FieldValueRequired"),
        ({"resources": {"requests": {"storage": "-1"}}}, "spec.resources[storage]", "FieldValueInvalid"),
        ({"volumeMode": "Raw"}, "spec.volumeMode", "FieldValueNotSupported"),
    ],
)
def test_a_claim_that_makes_no_sense_is_invalid(
    admin: ApiClient, namespace: str, spec: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("persistentvolumeclaims", claim(**spec), namespace)
    assert (field, reason) in causes(error)


def test_the_source_of_a_volume_never_changes(admin: ApiClient, namespace: str) -> None:
    admin.create("persistentvolumes", volume(namespace))
    change = {"spec": {"flexVolume": {"options": {"a": "c"}}}}
    with pytest.raises(StatusError) as error:
        admin.patch("persistentvolumes", namespace, change, kind=MERGE)
    assert causes(error) == {("spec.persistentvolumesource", "FieldValueForbidden")}
    assert "spec.persistentvolumesource is immutable after creation" in error.value.message
    with pytest.raises(StatusError) as error:
        admin.patch("persistentvolumes", namespace, {"spec": {"volumeMode": "Block"}}, kind=MERGE)
    assert ("volumeMode", "FieldValueInvalid") in causes(error)
    changed = admin.patch(
        "persistentvolumes", namespace, {"spec": {"accessModes": ["ReadWriteMany"]}}, kind=MERGE
    )
    assert changed["spec"]["accessModes"] == ["ReadWriteMany"]


def test_a_claim_gets_its_volume_once_and_changes_nothing_else(admin: ApiClient, namespace: str) -> None:
    admin.create("persistentvolumeclaims", claim(), namespace)

    def change(spec: dict[str, Any]) -> dict[str, Any]:
        return admin.patch("persistentvolumeclaims", "data", {"spec": spec}, namespace, kind=MERGE)

    assert change({"volumeName": "one"})["spec"]["volumeName"] == "one"
    for spec in ({"volumeName": "two"}, {"accessModes": ["ReadWriteMany"]}):
        with pytest.raises(StatusError) as error:
            change(spec)
        assert causes(error) == {("spec", "FieldValueForbidden")}
        assert IMMUTABLE in error.value.message


def test_a_claim_grows_only_if_its_class_allows_that(admin: ApiClient, namespace: str) -> None:
    admin.create("persistentvolumeclaims", claim(), namespace)
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    for phase, problem in (
        ("Pending", "spec is immutable after creation"),
        ("Bound", "only dynamically provisioned pvc can be resized"),
    ):
        admin.patch(
            "persistentvolumeclaims", "data", {"status": {"phase": phase}}, namespace, "status", MERGE
        )
        with pytest.raises(StatusError) as error:
            admin.patch("persistentvolumeclaims", "data", grown, namespace, kind=MERGE)
        assert problem in error.value.message


def test_both_are_held_until_nothing_uses_them(admin: ApiClient, namespace: str) -> None:
    """Their controllers remove the finalizers; here, the test does."""
    made = admin.create("persistentvolumes", volume(namespace))
    assert made["metadata"]["finalizers"] == [PV]
    admin.create("persistentvolumeclaims", claim(), namespace)
    for plural, name, of, finalizer in (
        ("persistentvolumeclaims", "data", namespace, PVC),
        ("persistentvolumes", namespace, "", PV),
    ):
        marked = admin.delete(plural, name, of)
        assert marked["metadata"]["deletionTimestamp"]
        assert marked["metadata"]["finalizers"] == [finalizer]
        admin.patch(plural, name, {"metadata": {"finalizers": None}}, of, kind=MERGE)
        with pytest.raises(StatusError) as error:
            admin.get(plural, name, of)
        assert error.value.code == 404


def test_a_deletion_names_the_object_that_was_read(admin: ApiClient, namespace: str) -> None:
    uid = admin.create("persistentvolumes", volume(namespace))["metadata"]["uid"]
    with pytest.raises(StatusError) as error:
        admin.delete("persistentvolumes", namespace, preconditions={"uid": "another"})
    assert refusal(error)[:2] == (409, "Conflict")
    assert "deletionTimestamp" not in admin.get("persistentvolumes", namespace)["metadata"]
    admin.delete("persistentvolumes", namespace, preconditions={"uid": uid})
    assert "deletionTimestamp" in admin.get("persistentvolumes", namespace)["metadata"]


def test_a_node_reads_the_volumes_of_its_pods_and_their_secrets(
    admin: ApiClient, node: NodeUnderTest, namespace: str
) -> None:
    admin.create("secrets", {"metadata": {"name": "key"}, "type": "example.com/ramdisk"}, namespace)
    flex = {**FLEX, "secretRef": {"name": "key", "namespace": namespace}}
    made = admin.create("persistentvolumeclaims", claim(volumeName=namespace), namespace)
    bound = {"namespace": namespace, "name": "data", "uid": made["metadata"]["uid"]}
    admin.create("persistentvolumes", volume(namespace, flexVolume=flex, claimRef=bound))
    for plural, name, of in (("persistentvolumes", namespace, ""), ("secrets", "key", namespace)):
        with pytest.raises(StatusError) as error:
            node.client.get(plural, name, of)
        assert f"no relationship found between node '{node.name}' and this object" in error.value.message
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    admin.create("pods", pod("one", nodeName=node.name, volumes=volumes), namespace)
    wait_until_allowed(node, "persistentvolumes", namespace, "")
    wait_until_allowed(node, "secrets", "key", namespace)
    path = f"/api/v1/persistentvolumes/{namespace}"
    label = {"metadata": {"labels": {"a": "b"}}}
    for method, body in (("DELETE", None), ("PATCH", label)):
        with pytest.raises(StatusError) as error:
            node.client.ask(method, path, body, MERGE)
        assert "can only get individual resources of this type" in error.value.message
