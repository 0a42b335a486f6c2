"""A cluster for the storage agents: definitions, an identity with the rights of the manifests, nodes, volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kubeletx_flexvolume.attachments.definitions import (
    ATTACHMENT_KIND,
    ATTACHMENTS,
    CLUSTERS,
    NAMESPACE,
    STALE,
    STALE_KIND,
    definitions,
    rights,
)
from kubeletx_flexvolume.values import DRIVER

from kubeletx_testing.apiserver import ApiClient, ApiServerDouble, Grant
from kubeletx_testing.apiserver.resources import Resource
from kubeletx_testing.waiting import let_others_work

USER = "system:serviceaccount:kubeletx-storage:kubeletx-storage"
BOOT = "{name}-boot"


def served(resource: Any, kind: str, namespaced: bool) -> Resource:
    """A resource as the test's client of the API server names it."""
    return Resource(
        plural=resource.plural,
        kind=kind,
        group=resource.group,
        version=resource.version,
        namespaced=namespaced,
    )


RECORDS = served(ATTACHMENTS, ATTACHMENT_KIND, False)
LISTS = served(STALE, STALE_KIND, False)
STORAGE_CLUSTERS = served(CLUSTERS, "StorageCluster", True)


class Closable(Protocol):
    """Something with connections."""

    async def close(self) -> None: ...


async def close(*of: Closable) -> None:
    """Close clients, and wait until TLS of their connections has ended on both sides."""
    for one in of:
        await one.close()
    for _ in range(20):
        await let_others_work()


def rules_of(kind: str) -> list[dict[str, Any]]:
    """The rules of the ClusterRole or the Role."""
    (role,) = (one for one in rights() if one["kind"] == kind)
    rules: list[dict[str, Any]] = role["rules"]
    return rules


def grants(user: str) -> list[Grant]:
    """The rights of the manifests, as grants of the double."""
    return [
        Grant(
            subject=user,
            verbs=tuple(rule["verbs"]),
            resources=tuple(rule["resources"]),
            groups=tuple(rule["apiGroups"]),
            names=tuple(rule.get("resourceNames", ("*",))),
            namespaces=namespaces,
        )
        for kind, namespaces in (("ClusterRole", ("*",)), ("Role", (NAMESPACE,)))
        for rule in rules_of(kind)
    ]


def set_up(api: ApiServerDouble) -> Path:
    """Install the definitions, and return the kubeconfig of the storage identity."""
    for one in definitions():
        api.admin.create("customresourcedefinitions", one)
    api.admin.create("namespaces", {"metadata": {"name": NAMESPACE}})
    for grant in grants(USER):
        api.grant(grant)
    return api.kubeconfig("storage", api.add_user(USER))


def add_node(admin: ApiClient, name: str, boot_id: str = "") -> None:
    """Register a node that is ready."""
    info = {"bootID": boot_id or BOOT.format(name=name)}
    status = {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True"}]}
    admin.create("nodes", {"metadata": {"name": name}})
    admin.patch("nodes", name, {"status": status}, subresource="status")


def add_volume(admin: ApiClient, name: str, *modes: str, claim: str = "", driver: str = DRIVER) -> None:
    """Make a PersistentVolume of the agent's driver, and its claim, to which it is bound."""
    size = {"storage": "1Gi"}
    wanted = list(modes) or ["ReadWriteOnce"]
    spec: dict[str, Any] = {
        "capacity": size,
        "accessModes": wanted,
        "flexVolume": {"driver": driver, "options": {"backend": "loop", "image": f"{name}.img"}},
    }
    if claim:
        bound = {
            "metadata": {"name": claim},
            "spec": {"accessModes": wanted, "resources": {"requests": size}, "volumeName": name},
        }
        made = admin.create("persistentvolumeclaims", bound, "default")
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": made["metadata"]["uid"]}
    admin.create("persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    if claim:
        admin.patch("persistentvolumes", name, {"status": {"phase": "Bound"}}, subresource="status")


def add_pod(admin: ApiClient, name: str, claim: str, node: str = "n1") -> None:
    """Make a pod on a node that uses a claim. Claim and PersistentVolume exist until it ends, also if they are deleted."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "busybox"}], "volumes": volumes}
    admin.create("pods", {"metadata": {"name": name}, "spec": spec}, "default")


def add_cluster(admin: ApiClient, name: str, namespace: str = "default", **metadata: Any) -> None:
    """Make a storage cluster."""
    value = {
        "apiVersion": STORAGE_CLUSTERS.api_version,
        "kind": STORAGE_CLUSTERS.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"description": "for tests"},
    }
    admin.create(STORAGE_CLUSTERS, value, namespace)
