from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Pod
from kubeletx.static.manifest import ManifestReader

NOW = datetime(2030, 1, 1, tzinfo=UTC)
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: '%s'}]}\n"


def read(text: str, *, node: str = "Node1", origin: str = "/m/web.yaml", source: str = "file") -> Pod:
    reader = ManifestReader(node_name=node)
    (pod,) = reader.read(text.encode(), origin=origin, source=source, seen_at=NOW).pods
    return pod


def test_the_uid_follows_content_node_and_place() -> None:
    base = read(POD % ("web", "app:1")).uid
    assert read("# a comment\n" + POD % ("web", "app:1")).uid == base
    assert read(POD % ("web", "app:2")).uid != base
    assert read(POD % ("web", "app:1"), node="node2").uid != base
    assert read(POD % ("web", "app:1"), origin="/m/other.yaml").uid != base


def test_a_uid_in_the_manifest_is_not_used() -> None:
    text = POD % ("web, uid: a-1", "app:1")
    assert read(text).uid == read(POD % ("web", "app:1")).uid


def test_what_an_exported_pod_carries_from_its_cluster_is_left_behind() -> None:
    metadata = (
        "web, resourceVersion: '5', generateName: web-, deletionTimestamp: 2029-01-01T00:00:00Z, "
        "deletionGracePeriodSeconds: 30, creationTimestamp: 2028-01-01T00:00:00Z"
    )
    pod = read(POD % (metadata, "app:1"))
    assert pod.name == "web-node1"
    assert (pod.metadata.resource_version, pod.metadata.generate_name) == ("", "")
    assert pod.metadata.deletion_timestamp is None
    assert pod.metadata.deletion_grace_period_seconds is None
    assert pod.metadata.creation_timestamp == NOW
    assert pod.status.phase == "Pending"


def test_a_url_pod_does_not_tolerate_every_taint() -> None:
    assert read(POD % ("web", "app:1"), source="http").spec.tolerations == ()
    (toleration,) = read(POD % ("web", "app:1")).spec.tolerations
    assert (toleration.operator, toleration.effect, toleration.key) == ("Exists", "NoExecute", None)


def test_a_name_that_grows_too_long_on_this_node_is_refused() -> None:
    with pytest.raises(InvalidPod, match=r"metadata\.name: 'a+' is too long: '.*' has 256 characters"):
        read(POD % ("a" * 250, "app:1"))


def test_all_pods_of_a_manifest_are_read_or_none() -> None:
    reader = ManifestReader(node_name="n")
    good, bad = POD % ("good", "app:1"), POD % ("bad", "a b")
    with pytest.raises(InvalidPod, match=r"\(pod bad\): spec.containers\[0\].image"):
        reader.read(f"{good}---\n{bad}".encode(), origin="x", source="file", seen_at=NOW)
    pods = reader.read(
        f"{good}---\n{good.replace('good', 'other')}".encode(),
        origin="x",
        source="file",
        seen_at=NOW,
    ).pods
    assert [pod.name for pod in pods] == ["good-n", "other-n"]
    assert len({pod.uid for pod in pods}) == 2


def test_unknown_fields_are_named_with_their_pod() -> None:
    reader = ManifestReader(node_name="n")
    misspelt = (POD % ("web", "app:1")).replace("spec: {", "spec: {restartPolice: Never, ")
    text = f"{misspelt}---\n{POD % ('other', 'app:1')}"
    pods, unknown, _ = reader.read(text.encode(), origin="x", source="file", seen_at=NOW)
    assert len(pods) == 2
    assert unknown == ((pods[0], ("spec.restartPolice",)),)
