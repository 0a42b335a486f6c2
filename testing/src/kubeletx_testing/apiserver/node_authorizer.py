"""The Node authorizer: which requests a node's agent may make.

A node's agent may list only the pods assigned to this node. It may read the objects that these pods refer to,
and its own Node, lease and CSINode. The refusals have the texts of a real server. Source: kubernetes,
plugin/pkg/auth/authorizer/node/{node_authorizer, graph}.go;
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go NodeRules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .pod_references import claims, pod_references
from .requests import Asked
from .resources import resource
from .selectors import field_terms
from .store import Store

LEASES: Final = "kube-node-lease"
_READ: Final = ("get", "list", "watch")
_LEASE_VERBS: Final = ("get", "create", "update", "patch", "delete")

# What every node may do with all objects of these resources.
_RULES: Final[dict[str, tuple[str, ...]]] = {
    "services": _READ,
    "runtimeclasses": _READ,
    "csidrivers": _READ,
    "events": ("create", "update", "patch"),
    "pods/status": ("update", "patch"),
    "pods/eviction": ("create",),
    "certificatesigningrequests": ("create", *_READ),
    "tokenreviews": ("create",),
    "subjectaccessreviews": ("create",),
    "selfsubjectaccessreviews": ("create",),
}


def node_problem(asked: Asked, store: Store) -> str | None:
    """Return None if a node's request is allowed, else the reason for the refusal.

    The reason is empty if the real server's message gives none.
    """
    if asked.resource.custom is not None:
        return ""
    check = _CHECKS.get(asked.resource.plural)
    if check is not None:
        return check(asked, store)
    what = asked.resource.plural + (f"/{asked.subresource}" if asked.subresource else "")
    return None if asked.verb in _RULES.get(what, ()) else ""


def _readable_object(asked: Asked, store: Store) -> str | None:
    if asked.verb not in _READ:
        return "can only read resources of this type"
    if asked.subresource:
        return "cannot read subresource"
    if not asked.namespace:
        return "can only read namespaced object of this type"
    return _related(asked, store)


def _single_object(asked: Asked, store: Store) -> str | None:
    if asked.verb != "get":
        return "can only get individual resources of this type"
    if asked.subresource:
        return "cannot get subresource"
    return _related(asked, store)


def _claim(asked: Asked, store: Store) -> str | None:
    """Return why a request for a PersistentVolumeClaim is refused; None if it is allowed.

    A node may get a claim and update or patch its status. Source: authorizeStatusUpdate.
    """
    if asked.subresource != "status":
        return _single_object(asked, store)
    if asked.verb not in ("update", "patch"):
        return "can only get/update/patch this type"
    return _related(asked, store)


def _account(asked: Asked, store: Store) -> str | None:
    if asked.subresource == "token":
        if asked.verb != "create" or not asked.name:
            return "can only create tokens for individual service accounts"
        return _related(asked, store)
    return _single_object(asked, store)


def _related(asked: Asked, store: Store) -> str | None:
    if not asked.name:
        return "No Object name found"
    node = asked.user.node_name
    wanted = (asked.resource.plural, asked.namespace, asked.name)
    if any(reference == wanted for reference in references(store, node)):
        return None
    return f"no relationship found between node '{node}' and this object"


def _lease(asked: Asked, _store: Store) -> str | None:
    if asked.verb not in _LEASE_VERBS:
        return "can only get, create, update, patch, or delete a node lease"
    if asked.namespace != LEASES:
        return f'can only access leases in the "{LEASES}" system namespace'
    if asked.verb != "create" and asked.name != asked.user.node_name:
        return "can only access node lease with the same name as the requesting node"
    return None


def _csi_node(asked: Asked, _store: Store) -> str | None:
    if asked.verb not in _LEASE_VERBS:
        return "can only get, create, update, patch, or delete a CSINode"
    if asked.verb != "create" and asked.name != asked.user.node_name:
        return "can only access CSINode with the same name as the requesting node"
    return None


def _node(asked: Asked, _store: Store) -> str | None:
    node = asked.user.node_name
    if asked.subresource:
        allowed = asked.subresource == "status" and asked.verb in ("update", "patch")
        return None if allowed else ""
    if asked.verb in ("create", "update", "patch"):
        return None
    if asked.verb not in _READ:
        return ""
    if asked.name == node:
        return None
    what = f"'{asked.name}'" if asked.name else "all nodes"
    return f"node '{node}' cannot read {what}, only its own Node object"


def _pod(asked: Asked, store: Store) -> str | None:
    if asked.subresource:
        what = f"pods/{asked.subresource}"
        return None if asked.verb in _RULES.get(what, ()) else ""
    match asked.verb:
        case "get":
            return _single_object(asked, store)
        case "list" | "watch":
            terms = field_terms(asked.query.get("fieldSelector", ""))
            if ("spec.nodeName", True, asked.user.node_name) in terms:
                return None
            return "can only list/watch pods with spec.nodeName field selector"
        case "create" | "delete":
            return None
        case _:
            return ""


_CHECKS: Final[dict[str, Callable[[Asked, Store], str | None]]] = {
    "secrets": _readable_object,
    "configmaps": _readable_object,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _single_object,
    "volumeattachments": _single_object,
    "serviceaccounts": _account,
    "leases": _lease,
    "csinodes": _csi_node,
    "nodes": _node,
    "pods": _pod,
}


def references(store: Store, node: str) -> Iterator[tuple[str, str, str]]:
    """Yield (resource, namespace, name) of every object that the pods on a node let the node read.

    These are the pods, the objects that they refer to, the volumes of their claims with the secrets of these
    volumes, and the node's volume attachments. Pods that have ended are included as long as they exist. A
    mirror pod gives access only to itself.
    """
    for stored in store.each(resource("pods")):
        pod = stored.value
        if pod["spec"].get("nodeName") != node:
            continue
        namespace = pod["metadata"]["namespace"]
        yield "pods", namespace, pod["metadata"]["name"]
        if "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {}):
            continue
        yield from pod_references(pod, namespace)
        for claim in claims(pod):
            yield from _behind_claim(store, namespace, claim)
    for stored in store.each(resource("volumeattachments")):
        if (stored.value.get("spec") or {}).get("nodeName") == node:
            yield "volumeattachments", "", stored.value["metadata"]["name"]


def _behind_claim(store: Store, namespace: str, claim: str) -> Iterator[tuple[str, str, str]]:
    for stored in store.each(resource("persistentvolumes")):
        spec = stored.value.get("spec") or {}
        bound = spec.get("claimRef") or {}
        if (bound.get("namespace"), bound.get("name")) == (namespace, claim):
            yield "persistentvolumes", "", stored.value["metadata"]["name"]
            for kind in spec.values():
                for field in ("secretRef", "nodeStageSecretRef", "nodePublishSecretRef"):
                    if isinstance(kind, dict) and kind.get(field):
                        secret = kind[field]
                        yield "secrets", secret.get("namespace") or namespace, secret.get("name", "")
