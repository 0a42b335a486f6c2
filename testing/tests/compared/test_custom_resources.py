"""Custom resources: definitions, schemas, statuses, tables."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kubeletx.api import Conflict, SystemClock
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client import Resource as ClientResource
from kubeletx.kube.client.definitions import install_definition
from kubeletx.kube.client.statuses import patch_status
from kubeletx.kube.types.custom import CustomObject, CustomObjectList
from kubeletx_testing.apiserver import ApiClient, StatusError
from kubeletx_testing.apiserver.client import JSON_PATCH, STRATEGIC
from kubeletx_testing.apiserver.resources import Resource
from kubeletx_testing.waiting import block_until
from testing.tests.compared.api_cluster import GUARD_SECONDS, Watch, refusal

_numbers = itertools.count(1)
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 100},
                "mode": {"type": "string", "enum": ["fast", "safe"], "default": "safe"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True},
                "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
TEXT = {"type": "string"}


def definition(plural: str, **version: Any) -> dict[str, Any]:
    kind = plural.removesuffix("s").capitalize()
    entry = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}, **version}
    spec = {
        "group": "test.example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind},
        "versions": [entry],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.example.com"},
        "spec": spec,
    }


class Custom:
    """A custom resource of one test, established."""

    def __init__(self, admin: ApiClient, namespace: str, **version: Any) -> None:
        plural = f"boxes{next(_numbers)}s"
        self.definition = admin.create("customresourcedefinitions", definition(plural, **version))
        self.name: str = self.definition["metadata"]["name"]
        self.kind: str = self.definition["spec"]["names"]["kind"]
        self.of = Resource(plural=plural, kind=self.kind, group="test.example.com")
        self.client_of = ClientResource("test.example.com", "v1", plural)
        self.admin, self.namespace = admin, namespace
        block_until(self._is_served)

    def _is_served(self) -> bool:
        definition = self.admin.get("customresourcedefinitions", self.name)
        conditions = {
            condition["type"]: condition["status"]
            for condition in (definition["status"].get("conditions") or ())
        }
        if conditions.get("Established") != "True":
            return False
        return self.admin.send("GET", self.of.path(namespace=self.namespace)).code == 200

    def value(self, name: str, spec: Any = None, **more: Any) -> dict[str, Any]:
        made = {"apiVersion": "test.example.com/v1", "kind": self.kind, "metadata": {"name": name}}
        return {**made, "spec": {"size": 1} if spec is None else spec, **more}

    def create(self, name: str, spec: Any = None, **more: Any) -> dict[str, Any]:
        return self.admin.create(self.of, self.value(name, spec, **more), self.namespace)


@pytest.fixture
def boxes(admin: ApiClient, namespace: str) -> Iterator[Custom]:
    """A resource with a status of its own."""
    made = Custom(admin, namespace, subresources={"status": {}})
    yield made
    admin.send("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{made.name}")


def test_a_definition_is_completed(boxes: Custom) -> None:
    names = boxes.definition["spec"]["names"]
    assert (names["singular"], names["listKind"]) == (boxes.kind.lower(), f"{boxes.kind}List")
    assert boxes.definition["spec"]["conversion"] == {"strategy": "None"}
    definition = boxes.admin.get("customresourcedefinitions", boxes.name)
    assert definition["status"]["storedVersions"] == ["v1"]
    assert definition["status"]["acceptedNames"]["kind"] == boxes.kind


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "other.test.example.com"}}, "metadata.name"),
        ({"spec": {"scope": "World"}}, "spec.scope"),
        ({"spec": {"versions": [{"name": "v1", "served": True, "storage": True}]}}, "openAPIV3Schema"),
    ],
)
def test_a_definition_that_makes_no_sense_is_invalid(
    admin: ApiClient, change: dict[str, Any], field: str
) -> None:
    made = definition("wrongs")
    made = {**made, **change, "spec": {**made["spec"], **change.get("spec", {})}}
    with pytest.raises(StatusError) as error:
        admin.create("customresourcedefinitions", made)
    assert refusal(error)[:2] == (422, "Invalid")
    assert field in error.value.message


@pytest.mark.parametrize(
    ("part", "field", "words"),
    [
        (
            {"description": "no type"},
            "properties[spec].properties[wrong].type",
            "Required value: must not be empty for specified object fields",
        ),
        (
            {"type": "array", "items": {"description": "no type"}},
            "properties[spec].properties[wrong].items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
            "properties[spec].properties[wrong].additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        ),
    ],
    ids=["field", "item", "exclusive"],
)
def test_a_schema_that_is_not_structural_is_invalid(
    admin: ApiClient, part: dict[str, Any], field: str, words: str
) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"wrong": part}}}}
    made = definition("untypeds", schema={"openAPIV3Schema": schema})
    with pytest.raises(StatusError) as error:
        admin.create("customresourcedefinitions", made)
    assert refusal(error)[:2] == (422, "Invalid")
    assert f"spec.validation.openAPIV3Schema.{field}" in error.value.message
    assert words in error.value.message


@pytest.mark.parametrize(
    "column", [{"name": "A", "type": "text", "jsonPath": ".spec.a"}, {"name": "A", "type": "string"}]
)
def test_a_column_that_makes_no_sense_is_invalid(admin: ApiClient, column: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("customresourcedefinitions", definition("columns", additionalPrinterColumns=[column]))
    assert refusal(error)[:2] == (422, "Invalid")
    assert "spec.additionalPrinterColumns[0]" in error.value.message


def test_a_group_of_kubernetes_needs_an_approval(admin: ApiClient) -> None:
    made = definition("fences")
    made["metadata"]["name"], made["spec"]["group"] = "fences.ha.k8s.io", "ha.k8s.io"
    with pytest.raises(StatusError) as error:
        admin.create("customresourcedefinitions", made)
    assert refusal(error)[:2] == (422, "Invalid")
    assert (
        'protected groups must have approval annotation "api-approved.kubernetes.io"' in error.value.message
    )


def test_unknown_fields_go_and_defaults_come(boxes: Custom) -> None:
    spec = {
        "size": 2,
        "other": 3,
        "tags": ["a"],
        "free": {"deep": {"a": [1, {"b": 2}]}},
        "either": "50%",
        "sizes": {"a": 1},
    }
    made = boxes.create("one", spec, status={"phase": "Done"}, extra=1)
    del spec["other"]
    assert made["spec"] == {**spec, "mode": "safe"}
    assert "extra" not in made
    assert "status" not in made
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({}, "spec.size", "Required value"),
        (
            {"size": "big"},
            "spec.size",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
        (
            {"size": 0},
            "spec.size",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            {"size": 1, "mode": "slow"},
            "spec.mode",
            'Unsupported value: "slow": supported values: "fast", "safe"',
        ),
        (
            {"size": 1, "tags": [1]},
            "spec.tags[0]",
            'Invalid value: "integer": spec.tags[0] in body must be of type string: "integer"',
        ),
    ],
)
def test_a_wrong_value_is_invalid(boxes: Custom, spec: Any, field: str, words: str) -> None:
    with pytest.raises(StatusError) as error:
        boxes.create("one", spec)
    message = f'{boxes.kind}.test.example.com "one" is invalid: {field}: {words}'
    assert refusal(error) == (422, "Invalid", message)


@pytest.mark.parametrize("text", ["", "yesterday", "2030-01-01", "2030-01-01T00:00:00"])
def test_a_time_has_the_format_of_times(admin: ApiClient, namespace: str, text: str) -> None:
    spec = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    timed = Custom(admin, namespace, schema={"openAPIV3Schema": schema})
    assert timed.create("good", {"at": "2030-01-01T00:00:00Z"})["spec"] == {"at": "2030-01-01T00:00:00Z"}
    with pytest.raises(StatusError) as error:
        timed.create("wrong", {"at": text})
    assert refusal(error)[:2] == (422, "Invalid")
    assert "spec.at in body must be of type date-time" in error.value.message


def test_an_object_says_its_kind(boxes: Custom) -> None:
    with pytest.raises(StatusError) as error:
        boxes.admin.create(boxes.of, {"metadata": {"name": "one"}, "spec": {"size": 1}}, boxes.namespace)
    assert error.value.code == 400


def test_a_status_is_written_by_its_subresource_alone(boxes: Custom) -> None:
    made = boxes.create("one")
    made["status"], made["spec"]["size"] = {"phase": "Done"}, 5
    main = boxes.admin.replace(boxes.of, made)
    assert "status" not in main
    assert (main["spec"]["size"], main["metadata"]["generation"]) == (5, 2)
    main["status"], main["spec"]["size"] = {"phase": "Done"}, 6
    main["metadata"]["labels"] = {"a": "b"}
    changed = boxes.admin.replace(boxes.of, main, "status")
    assert (changed["status"], changed["spec"]["size"]) == ({"phase": "Done"}, 5)
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 2


def test_a_replacement_needs_the_version(boxes: Custom) -> None:
    made = boxes.create("one")
    newer = boxes.admin.replace(boxes.of, {**made, "spec": {"size": 2}})
    with pytest.raises(StatusError) as error:
        boxes.admin.replace(boxes.of, {**made, "spec": {"size": 3}})
    assert refusal(error)[:2] == (409, "Conflict")
    del newer["metadata"]["resourceVersion"]
    with pytest.raises(StatusError) as error:
        boxes.admin.replace(boxes.of, newer)
    assert refusal(error)[:2] == (422, "Invalid")


def test_patches_are_merged_or_steps_and_never_strategic(boxes: Custom) -> None:
    boxes.create("one", {"size": 1, "tags": ["a"]})
    patched = boxes.admin.patch(boxes.of, "one", {"spec": {"tags": ["b"]}}, boxes.namespace)
    assert patched["spec"] == {"size": 1, "mode": "safe", "tags": ["b"]}
    version: dict[str, Any] = {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    steps = [version, {"op": "replace", "path": "/spec/size", "value": 2}]
    with pytest.raises(StatusError) as error:
        boxes.admin.patch(boxes.of, "one", steps, boxes.namespace, kind=JSON_PATCH)
    assert refusal(error)[:2] == (409, "Conflict")
    steps[0]["value"] = patched["metadata"]["resourceVersion"]
    changed = boxes.admin.patch(boxes.of, "one", steps, boxes.namespace, kind=JSON_PATCH)
    assert changed["spec"]["size"] == 2
    with pytest.raises(StatusError) as error:
        boxes.admin.patch(boxes.of, "one", {"spec": {"size": 3}}, boxes.namespace, kind=STRATEGIC)
    assert error.value.code == 415


def test_objects_are_listed_and_watched_by_their_labels(boxes: Custom, watch: Watch) -> None:
    boxes.create("one")
    version = boxes.admin.list(boxes.of, boxes.namespace)["metadata"]["resourceVersion"]
    watching = watch(boxes.admin, boxes.of, boxes.namespace, resourceVersion=version, labelSelector="a=b")
    boxes.admin.patch(boxes.of, "one", {"metadata": {"labels": {"a": "b"}}}, boxes.namespace)
    boxes.create("two")
    listed = boxes.admin.list(boxes.of, boxes.namespace, labelSelector="a=b")
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == (
        f"{boxes.kind}List",
        ["one"],
    )
    boxes.admin.delete(boxes.of, "one", boxes.namespace)
    assert watching.names(2) == [("ADDED", "one"), ("DELETED", "one")]


def test_discovery_knows_a_custom_resource(boxes: Custom) -> None:
    discovered = boxes.admin.ask("GET", "/apis/test.example.com/v1")
    entries = {entry["name"]: entry for entry in discovered["resources"]}
    assert entries[boxes.of.plural]["kind"] == boxes.kind
    assert entries[boxes.of.plural]["namespaced"] is True
    assert f"{boxes.of.plural}/status" in entries
    groups = boxes.admin.ask("GET", "/apis")["groups"]
    assert "test.example.com" in [group["name"] for group in groups]


def test_a_table_has_the_columns_of_the_definition(admin: ApiClient, namespace: str) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    ]
    boxes = Custom(admin, namespace, additionalPrinterColumns=columns)
    boxes.create("one", {"size": 7})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = admin.send("GET", boxes.of.path(namespace=namespace), headers=accept).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Mode", "Phase"]
    assert [row["cells"] for row in table["rows"]] == [["one", 7, "safe", None]]
    admin.delete("customresourcedefinitions", boxes.name)


def test_objects_go_with_their_definition(boxes: Custom) -> None:
    boxes.create("one")
    boxes.admin.delete("customresourcedefinitions", boxes.name)
    block_until(lambda: boxes.admin.send("GET", boxes.of.path("one", boxes.namespace)).code == 404)


def test_a_finalizer_of_an_object_holds_its_definition(boxes: Custom) -> None:
    made = boxes.value("one")
    made["metadata"]["finalizers"] = ["example.com/hold"]
    boxes.admin.create(boxes.of, made, boxes.namespace)
    boxes.admin.delete("customresourcedefinitions", boxes.name)
    block_until(lambda: "deletionTimestamp" in boxes.admin.get(boxes.of, "one", boxes.namespace)["metadata"])
    with pytest.raises(StatusError) as error:
        boxes.create("two")
    assert error.value.code == 403
    boxes.admin.patch(boxes.of, "one", {"metadata": {"finalizers": None}}, boxes.namespace)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{boxes.name}"
    block_until(lambda: boxes.admin.send("GET", path).code == 404)


# --- the product's client ---


async def test_a_definition_is_installed_and_brought_up_to_date(client: KubeClient, admin: ApiClient) -> None:
    plural, clock = f"parcels{next(_numbers)}s", SystemClock()
    async with asyncio.timeout(GUARD_SECONDS):
        manifest = definition(plural)
        first, second = await asyncio.gather(
            install_definition(client, manifest, clock=clock),
            install_definition(client, manifest, clock=clock),
        )
        assert first.metadata.uid == second.metadata.uid
        newer = definition(plural, subresources={"status": {}})
        installed = await install_definition(client, newer, clock=clock)
        assert installed.spec["versions"][0]["subresources"] == {"status": {}}
        again = await install_definition(client, newer, clock=clock)
        assert again.metadata.generation == installed.metadata.generation
    await asyncio.to_thread(admin.delete, "customresourcedefinitions", manifest["metadata"]["name"])


async def test_the_client_reads_and_patches_custom_objects(client: KubeClient, boxes: Custom) -> None:
    boxes.create("one", {"size": 3})
    of, namespace = boxes.client_of, boxes.namespace
    box = await client.get(of.path(namespace, "one"), CustomObject)
    assert (box.kind, box.spec) == (boxes.kind, {"size": 3, "mode": "safe"})
    patched = await patch_status(
        client, of, "one", {"phase": "Done"}, CustomObject, namespace=namespace, uid=box.metadata.uid
    )
    assert (patched.status, patched.spec) == ({"phase": "Done"}, box.spec)
    with pytest.raises(Conflict):
        await patch_status(
            client,
            of,
            "one",
            {"phase": "Again"},
            CustomObject,
            namespace=namespace,
            resource_version=box.metadata.resource_version,
        )
    listed = await client.get(of.path(namespace), CustomObjectList)
    assert [item.status for item in listed.items] == [{"phase": "Done"}]
