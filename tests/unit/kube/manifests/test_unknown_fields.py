"""Fields that a Pod does not have are named as kubectl names them; no field that it has is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeletx.kube.manifests.load import load_manifest
from kubeletx.kube.manifests.unknown_fields import MOST, strict_error, unknown_fields
from kubeletx.kube.types.core import Pod

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "labels": {"any": "thing"},
        "annotations": {"other": "thing"},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "selfLink": "/api",
    },
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"limits": {"example.com/gpu": 1}, "claims": [{"name": "g"}]},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}},
            }
        ],
        "volumes": [
            {"name": "v", "projected": {"sources": [{"downwardAPI": {"items": []}}]}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": []}}}},
        ],
    },
    "status": {"anything": {"at": "all"}},
}


def changed(*path: str | int, key: str) -> dict[str, Any]:
    """The pod with an unknown field at this place."""
    pod = msgspec.json.decode(msgspec.json.encode(POD))
    here = pod
    for step in path:
        here = here[step]
    here[key] = {"x": 1}
    return pod  # type: ignore[no-any-return]


def test_a_good_pod_has_no_unknown_fields() -> None:
    assert unknown_fields(POD, Pod) == ()


@pytest.mark.parametrize(
    ("path", "key", "named"),
    [
        ((), "specs", "specs"),
        (("metadata",), "lables", "metadata.lables"),
        (("spec",), "restartpolicy", "spec.restartpolicy"),
        (("spec", "containers", 0), "imagee", "spec.containers[0].imagee"),
        (("spec", "containers", 0, "resources"), "limit", "spec.containers[0].resources.limit"),
        (
            ("spec", "containers", 0, "livenessProbe", "httpGet", "httpHeaders", 0),
            "val",
            "spec.containers[0].livenessProbe.httpGet.httpHeaders[0].val",
        ),
        (
            ("spec", "volumes", 0, "projected", "sources", 0, "downwardAPI"),
            "item",
            "spec.volumes[0].projected.sources[0].downwardAPI.item",
        ),
    ],
)
def test_a_misspelt_field_is_named_by_its_path(path: tuple[str | int, ...], key: str, named: str) -> None:
    assert unknown_fields(changed(*path, key=key), Pod) == (named,)


def test_pods_of_a_list_are_named_from_their_own_beginning() -> None:
    text = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "List", "items": [POD, changed("spec", key="foo")]}
    )
    assert [loaded.unknown for loaded in load_manifest(text, "x")] == [(), ("spec.foo",)]


def test_the_words_of_strict_validation_are_the_api_servers() -> None:
    assert strict_error(("spec.a", "spec.b")) == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.a", unknown field "spec.b"'
    )


def test_the_unknown_fields_of_a_controller_and_of_its_template_are_named() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "imag": 1}]},
    }
    spec = {"replica": 3, "strategy": {}, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": spec,
        "status": {},
    }
    for text, before in (
        (document, ""),
        ({"apiVersion": "v1", "kind": "List", "items": [document]}, "items[0]."),
    ):
        (loaded,) = load_manifest(msgspec.json.encode(text), "x")
        assert loaded.unknown == (f"{before}spec.replica", f"{before}spec.template.spec.containers[0].imag")


def test_a_flood_of_unknown_fields_is_named_in_part_and_in_short() -> None:
    fields = unknown_fields({"k" * 1000 + str(n): 1 for n in range(1000)}, Pod)
    assert len(fields) == MOST
    assert max(map(len, fields)) <= 200
