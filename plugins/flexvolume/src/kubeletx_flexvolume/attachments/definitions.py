"""Manifests of what the storage agents need in a cluster: custom resources, and the rights of their identity.

    volumeattachments.storage.kubeletx.io   a record per volume (`record`), short name kva
    staleattachments.storage.kubeletx.io    a garbage list per node (`garbage`), short name kstale
    storageclusters.storage.kubeletx.io     storage clusters that volumes may belong to (`cleanup`)

Schemas list every field: an API server drops the others. The rights are what the code uses and no more; a
test compares both. ``deploy/storage`` has these manifests as files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.client import Resource
from kubeletx.kube.client.records import definition

from ..values import AccessMode, HolderStatus
from .garbage import MAX_ITEMS
from .record import MAX_ENTRIES

Json = dict[str, Any]

GROUP: Final = "storage.kubeletx.io"
VERSION: Final = "v1alpha1"
ATTACHMENTS: Final = Resource(GROUP, VERSION, "volumeattachments", namespaced=False)
ATTACHMENT_KIND: Final = "VolumeAttachment"
STALE: Final = Resource(GROUP, VERSION, "staleattachments", namespaced=False)
STALE_KIND: Final = "StaleAttachments"
CLUSTERS: Final = Resource(GROUP, VERSION, "storageclusters")
CLUSTER_KIND: Final = "StorageCluster"
FINALIZER: Final = f"{GROUP}/attachments"
NAMESPACE: Final = "kubeletx-storage"
"""Default namespace of the agents: of their Lease, and of the manifests."""
LEASE: Final = "kubeletx-storage-scan"
IDENTITY: Final = "kubeletx-storage"
"""Name of the ServiceAccount, the roles and their bindings."""

_POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"
"""Label that allows pods with access to the node, which the agents need."""
_RBAC: Final = "rbac.authorization.k8s.io"
_TEXT: Final[Json] = {"type": "string"}
_MOMENT: Final[Json] = {"type": "string", "format": "date-time"}
_ENTRY: Final[dict[str, Json]] = {
    "node": {"type": "string", "minLength": 1},
    "nodeUID": _TEXT,
    "bootID": {
        "type": "string",
        "minLength": 1,
        "description": "Of the node's kernel when it attached the volume.",
    },
    "podNamespace": _TEXT,
    "pod": _TEXT,
    "podUID": _TEXT,
    "mountDir": {"type": "string", "minLength": 1},
    "readOnly": {"type": "boolean"},
    "device": {"type": "string", "description": "Empty until the volume is attached."},
    "since": _MOMENT,
    "status": {"type": "string", "enum": [one.value for one in HolderStatus]},
    "reason": {"type": "string", "description": "Why the entry of another holder was removed for this one."},
    "volumeName": {"type": "string", "description": "Volume of the entry, in the record of an image, too."},
    "modes": {"type": "array", "items": {"type": "string", "enum": [one.value for one in AccessMode]}},
    "images": {
        "type": "array",
        "items": _TEXT,
        "description": "Records of its image, which have the entry, too.",
    },
    "backend": _TEXT,
    "image": _TEXT,
    "pool": _TEXT,
    "cluster": {
        "type": "string",
        "description": "NAMESPACE/NAME of the storage cluster; empty if there is none.",
    },
    "parameters": {"type": "object", "additionalProperties": _TEXT},
}
_REQUIRED: Final = ("node", "bootID", "podNamespace", "pod", "podUID", "mountDir")
_ITEM: Final[dict[str, Json]] = {
    **_ENTRY,
    "volumeName": {"type": "string", "minLength": 1},
    "removedFor": {
        "type": "string",
        "description": "Why the entry was removed from the record of the volume.",
    },
    "notedAt": _MOMENT,
}


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
    attachment = _definition(
        ATTACHMENTS,
        ATTACHMENT_KIND,
        "kva",
        "Entries of the pods that use a volume, named by its PersistentVolume. The storage agents write it.",
        _spec(
            {
                "attachments": _list(_ENTRY, _REQUIRED, MAX_ENTRIES),
                **dict.fromkeys(("nodes", "pods", "mode", "device", "status"), _TEXT),
            },
            ("attachments",),
        ),
        [("Nodes", "nodes"), ("Pods", "pods"), ("Mode", "mode"), ("Device", "device"), ("Status", "status")],
    )
    stale = _definition(
        STALE,
        STALE_KIND,
        "kstale",
        "Entries that were removed from records while the node of this name may still have the devices.",
        _spec(
            {
                "attachments": _list(_ITEM, (*_REQUIRED, "volumeName"), MAX_ITEMS),
                "count": {"type": "integer", "minimum": 0},
            },
            ("attachments",),
        ),
        [("Volumes", "count")],
    )
    cluster = _definition(
        CLUSTERS,
        CLUSTER_KIND,
        "kstc",
        "A storage cluster. Its deletion removes its volumes from all nodes.",
        _spec({"description": _TEXT}, ()),
        [("Description", "description")],
    )
    return [attachment, stale, cluster]


def rights(namespace: str = NAMESPACE, clusters: Sequence[Resource] = (CLUSTERS,)) -> list[Json]:
    """Return the manifests of the identity of the agents and its rights. `clusters`: resources of storage clusters."""
    account = {"kind": "ServiceAccount", "name": IDENTITY, "namespace": namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {_POD_SECURITY: "privileged"}},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": IDENTITY, "namespace": namespace},
        },
        _rbac("ClusterRole", {"rules": cluster_rules(clusters)}),
        _rbac("ClusterRoleBinding", {"roleRef": _role_ref("ClusterRole"), "subjects": [account]}),
        _rbac("Role", {"rules": lease_rules()}, namespace),
        _rbac("RoleBinding", {"roleRef": _role_ref("Role"), "subjects": [account]}, namespace),
    ]


def cluster_rules(clusters: Sequence[Resource] = (CLUSTERS,)) -> list[Json]:
    """Return the rules of the ClusterRole."""
    return [
        _rule(GROUP, (ATTACHMENTS.plural,), ("create", "delete", "get", "list", "patch", "watch")),
        _rule(GROUP, (STALE.plural,), ("create", "delete", "get", "list", "patch")),
        *(_rule(one.group, (one.plural,), ("list", "patch", "watch")) for one in clusters),
        _rule("", ("nodes",), ("get", "list")),
        _rule("", ("pods",), ("get",)),
        _rule("", ("persistentvolumes",), ("delete", "get")),
        _rule("", ("persistentvolumeclaims",), ("delete",)),
        _rule("", ("events",), ("create",)),
        {
            **_rule("apiextensions.k8s.io", ("customresourcedefinitions",), ("get",)),
            "resourceNames": [f"{ATTACHMENTS.plural}.{GROUP}"],
        },
    ]


def lease_rules() -> list[Json]:
    """Return the rules of the Role in the agents' namespace: the Lease by which they choose the scanning agent."""
    leases = ("leases",)
    return [
        _rule("coordination.k8s.io", leases, ("create",)),
        {**_rule("coordination.k8s.io", leases, ("get", "update")), "resourceNames": [LEASE]},
    ]


def manifests_text(namespace: str = NAMESPACE, resources: Sequence[str] = ()) -> str:
    """Return the custom resources, and the identity of the agents. `resources`: see `rights_text`."""
    return f"{definitions_text()}---\n{rights_text(namespace, resources)}"


def definitions_text() -> str:
    """Return the custom resources."""
    return _documents(definitions())


def rights_text(namespace: str = NAMESPACE, resources: Sequence[str] = ()) -> str:
    """Return the identity of the agents and its rights.

    `resources`: storage clusters that agents are started with; none: the resource of this distribution. Raises
    InvalidConfig for a text that is not GROUP/VERSION/PLURAL.
    """
    clusters = [cluster_resource(one) for one in resources] or [CLUSTERS]
    return _documents(rights(namespace, clusters))


# --- inside ---


def _documents(values: Iterable[Json]) -> str:
    from kubeletx.kube.text.yaml import dump_yaml  # only this command needs it

    plain = (msgspec.json.decode(msgspec.json.encode(one)) for one in values)  # without shared parts
    return "---\n".join(dump_yaml(one) for one in plain)


def _definition(
    resource: Resource, kind: str, short: str, description: str, spec: Json, columns: list[tuple[str, str]]
) -> Json:
    made = definition(resource, kind=kind, description=description, short_names=(short,))
    (version,) = made["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": spec}
    version["schema"]["openAPIV3Schema"]["required"] = ["spec"] if spec.get("required") else []
    version["additionalPrinterColumns"] = [
        *(_column(name, f".spec.{field}", spec["properties"][field]["type"]) for name, field in columns),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    if not version["schema"]["openAPIV3Schema"]["required"]:
        del version["schema"]["openAPIV3Schema"]["required"]
    return made


def _column(name: str, path: str, kind: str) -> Json:
    return {"name": name, "type": kind, "jsonPath": path}


def _spec(properties: Json, required: Sequence[str]) -> Json:
    made: Json = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


def _list(properties: dict[str, Json], required: Sequence[str], most: int) -> Json:
    items = {"type": "object", "required": list(required), "properties": dict(properties)}
    return {"type": "array", "maxItems": most, "x-kubernetes-list-type": "atomic", "items": items}


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _rbac(kind: str, content: Json, namespace: str = "") -> Json:
    metadata = {"name": IDENTITY, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}


def _role_ref(kind: str) -> Json:
    return {"apiGroup": _RBAC, "kind": kind, "name": IDENTITY}
