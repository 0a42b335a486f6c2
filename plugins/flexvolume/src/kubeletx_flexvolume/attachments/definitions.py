"""Manifests of what the storage agents need in a cluster: custom resources, and the rights of their identity.

    volumeattachments.storage.kubeletx.io   a record per volume (`record`), short name kva
    staleattachments.storage.kubeletx.io    a garbage list per node (`garbage`), short name kstale
    storageclusters.storage.kubeletx.io     storage clusters that volumes may belong to (`cleanup`)

``crds.yaml`` and ``rbac.yaml`` beside this module are the manifests; ``deploy/storage`` has copies. Schemas list every
field: an API server drops the others. The rights are what the code uses and no more. Tests compare both with the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from kubeletx.api import InvalidConfig
from kubeletx.kube.client import Resource

Json = dict[str, Any]

GROUP: Final = "storage.kubeletx.io"
VERSION: Final = "v1alpha1"
ATTACHMENTS: Final = Resource(GROUP, VERSION, "volumeattachments", namespaced=False)
ATTACHMENT_KIND: Final = "VolumeAttachment"
STALE: Final = Resource(GROUP, VERSION, "staleattachments", namespaced=False)
STALE_KIND: Final = "StaleAttachments"
CLUSTERS: Final = Resource(GROUP, VERSION, "storageclusters")
FINALIZER: Final = f"{GROUP}/attachments"
NAMESPACE: Final = "kubeletx-storage"
"""Default namespace of the agents: of their Lease, and of the manifests."""
LEASE: Final = "kubeletx-storage-scan"


def cluster_resource(text: str) -> Resource:
    """Parse GROUP/VERSION/PLURAL, such as ``ceph.rook.io/v1/cephclusters``. Raises InvalidConfig."""
    parts = text.split("/")
    if len(parts) == 3 and all(parts) and text == text.strip().lower():
        group, version, plural = parts
        return Resource(group, version, plural)
    raise InvalidConfig(
        field="--cluster-resource",
        problem=f"{text!r} is not GROUP/VERSION/PLURAL",
        fix="write for example ceph.rook.io/v1/cephclusters",
    )


def definitions() -> list[Json]:
    """Return the manifests of the custom resources."""
    return _documents("crds.yaml")


def rights(namespace: str = NAMESPACE, clusters: Sequence[Resource] = (CLUSTERS,)) -> list[Json]:
    """Return the manifests of the identity of the agents and its rights. `clusters`: resources of storage clusters."""
    made = _documents("rbac.yaml")
    for one in made:
        if one["kind"] == "Namespace":
            one["metadata"]["name"] = namespace
        for owner in (one["metadata"], *one.get("subjects", ())):
            if "namespace" in owner:
                owner["namespace"] = namespace
        if one["kind"] == "ClusterRole":
            (number,) = (n for n, rule in enumerate(one["rules"]) if rule["resources"] == [CLUSTERS.plural])
            rule = one["rules"][number]
            one["rules"][number : number + 1] = [
                {**rule, "apiGroups": [cluster.group], "resources": [cluster.plural]} for cluster in clusters
            ]
    return made


def manifests_text(namespace: str = NAMESPACE, resources: Sequence[str] = ()) -> str:
    """Return the custom resources, and the identity of the agents and its rights.

    `resources`: storage clusters that agents are started with; none: the resource of this distribution. Raises
    InvalidConfig for a text that is not GROUP/VERSION/PLURAL.
    """
    from kubeletx.kube.text.yaml import dump_yaml  # only this command needs it

    clusters = [cluster_resource(text) for text in resources] or [CLUSTERS]
    return "---\n".join((_text("crds.yaml"), *map(dump_yaml, rights(namespace, clusters))))


def _documents(name: str) -> list[Json]:
    from kubeletx.kube.text.yaml import parse_documents

    return parse_documents(_text(name))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text()
