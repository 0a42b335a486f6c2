from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.manifests.hashes import container_hash, pod_hash
from kubeletx.kube.manifests.load import load_pods
from tests.unit.kube.pod_text import pod_from, raw_pod

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "labels": {"a": "1", "b": "2", "c": "3"},
        "annotations": {"x": "1", "y": "2"},
    },
    "spec": {
        "nodeSelector": {"a": "1", "b": "2"},
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
    },
}


def shuffled(value: object, order: random.Random) -> object:
    if isinstance(value, dict):
        items = [(key, shuffled(inner, order)) for key, inner in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(order: random.Random) -> None:
    (pod,) = load_pods(json.dumps(shuffled(POD, order)).encode(), "x")
    assert pod_hash(pod) == pod_hash(pod_from(POD))


def test_the_hash_stays_the_same_over_releases() -> None:
    assert pod_hash(pod_from(POD)) == "7935f2c448beda3e5d10f156838d6781"


@pytest.mark.parametrize(
    "other",
    [
        raw_pod(metadata="name: other"),
        raw_pod(metadata="namespace: other"),
        raw_pod(metadata="labels: {a: b}"),
        raw_pod(metadata="annotations: {a: b}"),
        raw_pod("hostNetwork: true"),
        raw_pod(container="command: [x]"),
    ],
)
def test_every_change_by_the_author_changes_the_hash(other: object) -> None:
    assert pod_hash(other) != pod_hash(raw_pod())  # type: ignore[arg-type]


def test_what_the_agent_adds_does_not_change_the_hash() -> None:
    pod = raw_pod(metadata="annotations: {a: b}")
    metadata = msgspec.structs.replace(
        pod.metadata,
        uid="u",
        annotations={
            **pod.metadata.annotations,
            "kubernetes.io/config.seen": "now",
            "kubernetes.io/config.source": "file",
            "kubeletx.io/bound-runtime": "r",
        },
    )
    assert pod_hash(msgspec.structs.replace(pod, metadata=metadata)) == pod_hash(pod)


def test_a_containers_hash_covers_name_and_image_only() -> None:
    (base,) = raw_pod().spec.containers
    assert container_hash(base) == container_hash(
        raw_pod(container="command: [x], env: [{name: A}]").spec.containers[0]
    )
    assert container_hash(base) != container_hash(msgspec.structs.replace(base, image="app:2"))
    assert container_hash(base) != container_hash(msgspec.structs.replace(base, name="d"))
