"""Config maps, secrets, claims and controllers of manifests. Wrong ones: `tests/unit/static/bad_manifests`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.load import load_all, load_manifest
from kubeletx.kube.manifests.objects import LocalObject, data_of, shown
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.objects import ConfigMap, PersistentVolumeClaim, Secret

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "a"}]},
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def load(
    kind: str, version: str = "v1", name: str = "web", **parts: Any
) -> tuple[list[LocalObject], list[Pod]]:
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}
    loaded = load_all(json.dumps(document).encode(), "x")
    return [one.item for one in loaded.objects], [one.pod for one in loaded.pods]


def problem(kind: str, version: str = "v1", **parts: Any) -> str:
    with pytest.raises(InvalidPod) as caught:
        load(kind, version, **parts)
    return str(caught.value)


def test_a_config_map_and_a_secret_keep_texts_and_bytes() -> None:
    ((config,), _) = load("ConfigMap", data={"a": "b", "n": None}, binaryData={"z": "AAEC\n"}, immutable=True)
    ((secret,), _) = load("Secret", data={"a": "aGk=", "b": "aGk="}, stringData={"b": "new"}, type="x/y")
    assert isinstance(config, ConfigMap)
    assert isinstance(secret, Secret)
    assert config.immutable
    assert config.metadata.namespace == "default"
    assert data_of(config).as_bytes() == {"a": b"b", "n": b"", "z": b"\x00\x01\x02"}
    assert data_of(secret).as_bytes() == {"a": b"hi", "b": b"new"}


def test_a_secret_is_shown_without_its_values() -> None:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "aGk=", "a": "b"}
    ((secret,), _) = load("Secret", data={"key": "aGk="}, metadata={"name": "s", "annotations": notes})
    assert shown(secret)["data"] == {"key": "<2 bytes>"}
    assert "aGk=" not in json.dumps(shown(secret)) + repr(secret)
    assert "is not base64" in problem("Secret", data=shown(secret)["data"])


@pytest.mark.parametrize(
    ("kind", "parts", "text"),
    [
        ("ConfigMap", {"data": {"a": "x" * 600_000}, "binaryData": {"b": "QUFB" * 160_000}}, "data: has 1080000"),
        ("ConfigMap", {"data": {"a": "b"}, "binaryData": {"a": "aGk="}}, "binaryData[a]: is a key of data, too"),
        ("ConfigMap", {"data": {"": "b"}}, "data: has an empty key"),
        ("ConfigMap", {"data": {"a b": "c"}}, "data[a b]: 'a b' is not a key"),
        ("ConfigMap", {"data": ["a"]}, "data: is not a mapping"),
        ("ConfigMap", {"metadata": {"name": "../a"}}, "metadata.name: '../a' is not a DNS name"),
        ("ConfigMap", {"metadata": {"name": "a", "namespace": "b/c"}}, "metadata.namespace: 'b/c'"),
        ("Secret", {"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, "data[tls.key]: is missing"),
        ("PersistentVolumeClaim", {"spec": {}}, "spec.accessModes: is missing"),
        ("PersistentVolumeClaim", {"spec": {**CLAIM, "resources": {}}}, "spec.resources.requests[storage]"),
        ("PersistentVolumeClaim", {"spec": {**CLAIM, "volumeMode": "Block"}}, "spec.volumeMode: Block"),
        ("PersistentVolumeClaim", {"spec": {**CLAIM, "volumeName": "pv"}}, "spec.volumeName: names an object"),
    ],
)  # fmt: skip
def test_what_an_api_server_or_the_node_cannot_take_is_refused(kind: str, parts: Any, text: str) -> None:
    assert text in problem(kind, **parts)


def test_unknown_fields_of_objects_in_lists_are_named() -> None:
    items = [{"metadata": {"name": "a"}, "stringData": {}, "dta": {}}]
    text = json.dumps({"apiVersion": "v1", "kind": "SecretList", "items": items})
    (loaded,) = load_all(text.encode(), "x").objects
    assert (loaded.item.metadata.name, loaded.unknown) == ("a", ("dta",))


def test_objects_cannot_come_from_a_url() -> None:
    text = b"{apiVersion: v1, kind: Secret, metadata: {name: a}}"
    with pytest.raises(InvalidPod, match=r"x \(secret a\): kind: 'Secret' cannot come from here"):
        load_manifest(text, "x")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_a_controller_of_one_pod_is_that_pod(kind: str) -> None:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, "replicas": 1}
    objects, (pod,) = load(kind, "apps/v1", spec=spec)
    assert (objects, pod.name, pod.spec.restart_policy) == ([], "web", "Always")
    assert pod.metadata.labels == {"app": "web"}


def test_a_stateful_set_brings_its_claims() -> None:
    spec = {
        "serviceName": "db",
        "template": TEMPLATE,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}],
    }
    (claim,), (pod,) = load("StatefulSet", "apps/v1", spec=spec)
    assert isinstance(claim, PersistentVolumeClaim)
    assert (claim.metadata.name, pod.name) == ("data-web-0", "web-0")
    assert (pod.spec.hostname, pod.spec.subdomain) == ("web-0", "db")
    assert pod.spec.volumes[0].persistent_volume_claim is not None
    assert pod.spec.volumes[0].persistent_volume_claim.claim_name == "data-web-0"


@pytest.mark.parametrize(
    ("written", "limit", "policy", "number"),
    [
        ("OnFailure", {}, "OnFailure", "6"),
        ("Never", {}, "OnFailure", "6"),
        ("Never", {"backoffLimit": 4}, "OnFailure", "4"),
        ("Never", {"backoffLimit": 0}, "Never", "0"),
    ],
)
def test_a_job_is_tried_again_up_to_its_backoff_limit(
    written: str, limit: dict[str, int], policy: str, number: str
) -> None:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": written}}
    _, (pod,) = load("Job", "batch/v1", spec={"template": template, "activeDeadlineSeconds": 5, **limit})
    assert (pod.spec.restart_policy, pod.spec.active_deadline_seconds) == (policy, 5)
    assert pod.metadata.labels["job-name"] == "web"
    assert pod.metadata.annotations == {"kubeletx.io/backoff-limit": number}


@pytest.mark.parametrize(
    ("kind", "version", "spec", "text"),
    [
        ("Deployment", "apps/v1", {"replicas": 0}, "spec.replicas: 0 is not one pod"),
        ("Deployment", "apps/v1", {"paused": True}, "spec.paused: True cannot be run"),
        ("Deployment", "apps/v1", {"template": None}, "spec.template: is missing"),
        ("Deployment", "apps/v1", {"selector": {"matchLabels": {"a": "b"}}}, "spec.selector.matchLabels: does"),
        ("Deployment", "v1", {}, "apiVersion: 'v1' is not a version of Deployment; write apiVersion: apps/v1"),
        ("DaemonSet", "apps/v1", {"template": {"spec": {"restartPolicy": "Never"}}}, "'Never' is not possible"),
        ("StatefulSet", "apps/v1", {"volumeClaimTemplates": ["a"]}, "is not a list of claims"),
        ("StatefulSet", "apps/v1", {"volumeClaimTemplates": [{"spec": {}}]}, "metadata.name: '-web-0' is not"),
        ("Job", "batch/v1", {"completions": 3}, "spec.completions: 3 is not one pod"),
        ("Job", "batch/v1", {"completionMode": "Indexed"}, "numbers its pods"),
        ("Job", "batch/v1", {"podFailurePolicy": {"rules": []}}, "needs the Job controller"),
        ("Job", "batch/v1", {"backoffLimit": -1}, "spec.backoffLimit: -1 is negative"),
        ("CronJob", "batch/v1", {}, "kind: 'CronJob' is not run by a node"),
    ],
)  # fmt: skip
def test_other_controllers_are_refused_with_the_field(kind: str, version: str, spec: Any, text: str) -> None:
    assert text in problem(kind, version, spec={"template": TEMPLATE, **spec})


def test_mistakes_in_a_template_have_their_path() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": 1}]}}
    assert "spec.template.spec.containers[0].image: 1 is not a string" in problem(
        "Deployment", "apps/v1", spec={"template": template}
    )
