"""Persistent volumes of FlexVolume drivers, from an API server: claims, secrets, and the volumes in the node's status."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import Lab, PrivateAgent
from tests.integration.storage.flex_drivers import LOOP, SECRET
from tests.integration.storage.pod_storage import STORAGE, StorageOfNode
from tests.integration.support.clusters import ClusterNode, cluster_agent
from tests.integration.support.survival import until

SPACE = "default"
PASSWORD = "hunter2-secret"
NAMES = ("loop", "secret", "storage")


@pytest.fixture
def node(tmp_path: Path, make_agent: Callable[..., PrivateAgent]) -> Iterator[ClusterNode]:
    with ApiServerDouble(tmp_path / "api") as api:
        yield cluster_agent(api, make_agent, manifest_dir=None)


@pytest.fixture
def drivers(node: ClusterNode, lab: Lab) -> Iterator[StorageOfNode]:
    """The storage agent, and two drivers of third parties, of which one attaches devices and one needs a password."""
    made = StorageOfNode(node.agent, lab.base_dir / "cluster-storage")
    (made.state / "password").write_text(PASSWORD)
    try:
        made.start()
        made.install(LOOP)
        made.install(SECRET)
        yield made
    finally:
        made.end()


def bind(node: ClusterNode, name: str, driver: str, **source: Any) -> None:
    """A persistent volume and its claim, bound as the controller does it."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"}
    claim = {
        **common,
        "volumeName": f"pv-{name}",
        "resources": {"requests": {"storage": "16Mi"}},
    }
    made = node.admin.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": claim}, SPACE)
    volume = {
        **common,
        "capacity": {"storage": "16Mi"},
        "claimRef": {"namespace": SPACE, "name": name, "uid": made["metadata"]["uid"]},
        "flexVolume": {"driver": driver, **source},
    }
    node.admin.create("persistentvolumes", {"metadata": {"name": f"pv-{name}"}, "spec": volume})
    node.admin.patch("persistentvolumeclaims", name, {"status": {"phase": "Bound"}}, SPACE, "status")


def make_secret(node: ClusterNode, type_: str) -> None:
    """The secret of the volumes, in a namespace of its own."""
    data = {"password": base64.b64encode(PASSWORD.encode()).decode()}
    node.admin.create("secrets", {"metadata": {"name": "login"}, "type": type_, "data": data}, "storage")


def messages(node: ClusterNode) -> str:
    """Text of all events."""
    return "\n".join(one["message"] for one in node.admin.list("events", SPACE)["items"])


def test_claims_and_secrets_reach_the_drivers_and_the_node_reports_its_volumes(
    node: ClusterNode, drivers: StorageOfNode
) -> None:
    node.admin.create("namespaces", {"metadata": {"name": "storage"}})
    bind(node, "loop", LOOP, fsType="ext4")
    bind(node, "secret", SECRET, secretRef={"name": "login", "namespace": "storage"})
    bind(node, "storage", STORAGE, fsType="ext4", options={"backend": "loop", "size": "16Mi"})
    make_secret(node, "Opaque")
    script = "for one in loop secret storage; do echo $one > /$one/file; done; sync; sleep 10000"
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in NAMES]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in NAMES]
    node.apply("uses", container={"command": ["sh", "-c", script], "volumeMounts": mounts}, volumes=volumes)
    words = f"secret \"storage/login\" has type 'Opaque', not '{SECRET}'; create it again with that type"
    until(lambda: words in messages(node), "an event about the type of the secret")
    node.admin.delete("secrets", "login", "storage")
    make_secret(node, SECRET)
    node.wait_running("uses")
    until((drivers.state / "data/file").exists, "the pod's file")
    (device,) = [one for one in drivers.devices() if one not in _devices_of_pool(drivers)]
    attached = until(lambda: _status(node).get("volumesAttached"), "attached volumes in the status")
    assert [(one["name"].rpartition("/")[2], one["devicePath"]) for one in attached] == [("pv-loop", device)]
    assert _status(node)["volumesInUse"] == [one["name"] for one in attached]
    assert drivers.entries() == [f"{node.name} {SPACE}/uses"]
    node.admin.delete("pods", "uses", SPACE)
    node.wait_gone("uses")
    until(lambda: not drivers.left(), "nothing of the volumes is left")
    until(lambda: not _status(node).get("volumesAttached"), "no attached volumes in the status")
    said = node.agent.log_path.read_text() + messages(node)
    assert PASSWORD not in said
    assert base64.b64encode(PASSWORD.encode()).decode() not in said


def _devices_of_pool(drivers: StorageOfNode) -> list[str]:
    return drivers.process.devices()


def _status(node: ClusterNode) -> dict[str, Any]:
    status: dict[str, Any] = (node.node() or {})["status"]
    return status
