"""The admission plugin NodeRestriction: which objects a node's agent may write, and which fields of them.

Source: kubernetes, plugin/pkg/admission/noderestriction/admission.go, including its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .authorization import Authorizer
from .errors import Json, StatusError, forbidden
from .node_authorizer import LEASES
from .pod_references import pod_references
from .pods import MIRROR
from .requests import Asked
from .resources import resource
from .store import Store

_PROTECTED_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_OWN_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "node.kubernetes.io/exclude-from-external-load-balancers",
    }
)
_OWN_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_USE: Final = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
_RESTRICTED: Final = "node-restriction.kubernetes.io"
_TOKEN: Final = ("serviceaccounts", "token")


def restrict(
    asked: Asked, store: Store, authorizer: Authorizer
) -> Callable[[str, Json | None, Json | None], None]:
    """Return the admission check for the objects that one request writes.

    The check is called with the operation (CREATE, UPDATE, DELETE), the old object and the new object. It
    raises StatusError 403 for a write that a node may not make. For a user who is not a node it accepts
    everything.
    """
    node = asked.user.node_name

    def admit(operation: str, old: Json | None, new: Json | None) -> None:
        check = _CHECKS.get(asked.resource.plural) if asked.resource.custom is None else None
        if node and check is not None:
            check(asked, node, operation, old, new, store)
        if node and new is not None and (asked.resource.plural, asked.subresource) == _TOKEN:
            _audience(asked, new, store, authorizer)

    return admit


def _refused(asked: Asked, problem: str, name: str = "") -> StatusError:
    return forbidden(asked.resource, name or asked.name, problem)


def _pod(asked: Asked, node: str, operation: str, old: Json | None, new: Json | None, store: Store) -> None:
    if asked.subresource == "eviction":
        if old is not None and old["spec"].get("nodeName") != node:
            raise _refused(asked, f"node {node} can only evict pods with spec.nodeName set to itself")
    elif asked.subresource == "status":
        _pod_status(asked, node, old, new)
    elif operation == "CREATE" and new is not None:
        _new_pod(asked, node, new, store)
    elif operation == "DELETE" and old is not None:
        if old["spec"].get("nodeName") != node:
            raise _refused(asked, f'node "{node}" can only delete pods with spec.nodeName set to itself')
    else:
        raise _refused(
            asked, f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
        )


def _pod_status(asked: Asked, node: str, old: Json | None, new: Json | None) -> None:
    if old is None or new is None:
        return
    if old["spec"].get("nodeName") != node:
        raise _refused(
            asked, f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        )
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise _refused(asked, f'node "{node}" cannot update labels through pod status')


def _new_pod(asked: Asked, node: str, pod: Json, store: Store) -> None:
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    if MIRROR not in (metadata.get("annotations") or {}):
        raise _refused(
            asked, f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods', name
        )
    if pod["spec"].get("nodeName") != node:
        raise _refused(asked, f'node "{node}" can only create pods with spec.nodeName set to itself', name)
    _check_owner(asked, node, pod, store)
    names = {
        "serviceaccounts": "a service account",
        "secrets": "secrets",
        "configmaps": "configmaps",
        "persistentvolumeclaims": "persistentvolumeclaims",
    }
    for plural, _, _ in pod_references(pod, ""):
        raise _refused(asked, f'node "{node}" can not create pods that reference {names[plural]}', name)


def _check_owner(asked: Asked, node: str, pod: Json, store: Store) -> None:
    owners, name = pod["metadata"].get("ownerReferences") or [], pod["metadata"]["name"]
    if len(owners) > 1:
        problem = f'node "{node}" can only create pods with a single owner reference set to itself'
        raise _refused(asked, problem, name)
    if not owners:
        raise _refused(
            asked, f'node "{node}" can only create pods with an owner reference set to itself', name
        )
    owner = owners[0]
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        problem = f'node "{node}" can only create pods with an owner reference set to itself'
        raise _refused(asked, problem, name)
    if not owner.get("controller"):
        problem = f'node "{node}" can only create pods with a controller owner reference set to itself'
        raise _refused(asked, problem, name)
    if owner.get("blockOwnerDeletion"):
        raise _refused(asked, f'node "{node}" must not set blockOwnerDeletion on an owner reference', name)
    stored = store.find(resource("nodes"), ("", node))
    if stored is None:
        raise _refused(asked, f'node "{node}" not found', name)
    if stored.value["metadata"]["uid"] != owner.get("uid"):
        problem = (
            f"node {node} UID mismatch: expected {owner.get('uid')} got {stored.value['metadata']['uid']}"
        )
        raise _refused(asked, problem, name)


def _node(asked: Asked, node: str, operation: str, old: Json | None, new: Json | None, _store: Store) -> None:
    name = (new or old or {})["metadata"]["name"]
    if name != node:
        raise _refused(asked, f'node "{node}" is not allowed to modify node "{name}"', name)
    if new is None:
        return
    if operation == "CREATE":
        refused = _protected(new["metadata"].get("labels") or {}, {})
        if refused:
            raise _refused(
                asked, f'node "{node}" is not allowed to set the following labels: {", ".join(refused)}', name
            )
    elif old is not None:
        _changed_node(asked, node, old, new)


def _changed_node(asked: Asked, node: str, old: Json, new: Json) -> None:
    before, after = old["metadata"], new["metadata"]
    if (before.get("ownerReferences") or []) != (after.get("ownerReferences") or []):
        raise _refused(asked, f'node "{node}" is not allowed to modify ownerReferences')
    if ((old.get("spec") or {}).get("taints") or []) != ((new.get("spec") or {}).get("taints") or []):
        raise _refused(asked, f'node "{node}" is not allowed to modify taints')
    refused = _protected(after.get("labels") or {}, before.get("labels") or {})
    if refused:
        raise _refused(asked, f"is not allowed to modify labels: {', '.join(refused)}")


def _protected(after: dict[str, str], before: dict[str, str]) -> list[str]:
    changed = [key for key in {*after, *before} if after.get(key) != before.get(key)]
    return sorted(key for key in changed if not _may_set(key))


def _may_set(label: str) -> bool:
    if label in _OWN_LABELS:
        return True
    domain = label.partition("/")[0] if "/" in label else ""
    if domain == _RESTRICTED or domain.endswith(f".{_RESTRICTED}"):
        return False
    if not any(domain == protected or domain.endswith(f".{protected}") for protected in _PROTECTED_DOMAINS):
        return True
    return any(domain == own or domain.endswith(f".{own}") for own in _OWN_DOMAINS)


def _claim(
    asked: Asked, node: str, _operation: str, old: Json | None, new: Json | None, _store: Store
) -> None:
    """Raise StatusError unless the request changes only a claim's capacity, conditions and resize states.

    Source: admitPVCStatus.
    """
    if asked.subresource != "status":
        raise _refused(asked, "may only update PVC status")
    if old is not None and new is not None and _without_claim_use(old) != _without_claim_use(new):
        problem = (
            f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
        )
        raise _refused(asked, problem)


def _without_claim_use(claim: Json) -> Json:
    metadata = {
        name: part
        for name, part in claim["metadata"].items()
        if name not in ("resourceVersion", "managedFields")
    }
    status = {name: part for name, part in (claim.get("status") or {}).items() if name not in _CLAIM_USE}
    return {**claim, "metadata": metadata, "status": status}


def _lease(
    asked: Asked, node: str, _operation: str, old: Json | None, new: Json | None, _store: Store
) -> None:
    metadata = (new or old or {})["metadata"]
    if metadata.get("namespace") != LEASES:
        problem = f'can only access leases in the "{LEASES}" system namespace'
        raise _refused(asked, problem, metadata["name"])
    if metadata["name"] != node:
        problem = "can only access node lease with the same name as the requesting node"
        raise _refused(asked, problem, metadata["name"])


def _csi_node(
    asked: Asked, node: str, _operation: str, old: Json | None, new: Json | None, _store: Store
) -> None:
    name = (new or old or {})["metadata"]["name"]
    if name != node:
        raise _refused(asked, "can only access CSINode with the same name as the requesting node", name)


def _token(
    asked: Asked, node: str, _operation: str, _old: Json | None, new: Json | None, store: Store
) -> None:
    """Raise StatusError unless the TokenRequest `new` names a pod on the node, with the pod's UID."""
    if asked.subresource != "token" or new is None:
        return
    bound = (new.get("spec") or {}).get("boundObjectRef") or {}
    if bound.get("apiVersion") != "v1" or bound.get("kind") != "Pod" or not bound.get("name"):
        raise _refused(asked, "node requested token not bound to a pod")
    if not bound.get("uid"):
        raise _refused(asked, "node requested token with a pod binding without a uid")
    pod = store.find(resource("pods"), (asked.namespace, bound["name"]))
    if pod is None:
        raise StatusError(
            404,
            "NotFound",
            f'pod "{bound["name"]}" not found',
            {"name": bound["name"], "kind": "pod"},
        )
    if pod.value["metadata"]["uid"] != bound["uid"]:
        raise _refused(
            asked,
            f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    if pod.value["spec"].get("nodeName") != node:
        raise _refused(asked, "node requested token bound to a pod scheduled on a different node")


def _audience(asked: Asked, request: Json, store: Store, authorizer: Authorizer) -> None:
    """Raise StatusError if the node may not request a token for this audience.

    Allowed are the audiences of the pod's projected volumes, and those granted to the user. `_token` has
    already checked that the pod exists.
    """
    spec = request.get("spec") or {}
    audiences = spec.get("audiences") or [""]
    if len(audiences) > 1:
        raise _refused(asked, "node may only request 0 or 1 audiences")
    pod = store.find(resource("pods"), (asked.namespace, spec["boundObjectRef"]["name"]))
    if pod is not None and audiences[0] in _audiences(pod.value):
        return
    right = {
        "verb": "request-serviceaccounts-token-audience",
        "namespace": asked.namespace,
        "resource": audiences[0],
        "name": asked.name,
    }
    if not authorizer.review(asked.user, right)[0]:
        raise _refused(
            asked,
            f'audience "{audiences[0]}" not found in pod spec volume, {asked.user.name} is not authorized to '
            "request tokens for this audience",
        )


def _audiences(pod: Json) -> set[str]:
    volumes = (volume.get("projected") or {} for volume in pod["spec"].get("volumes") or [])
    sources = (source for volume in volumes for source in volume.get("sources") or [])
    tokens = (source["serviceAccountToken"] for source in sources if source.get("serviceAccountToken"))
    return {token.get("audience") or "" for token in tokens}


_CHECKS: Final[dict[str, Callable[[Asked, str, str, Json | None, Json | None, Store], None]]] = {
    "pods": _pod,
    "persistentvolumeclaims": _claim,
    "nodes": _node,
    "leases": _lease,
    "csinodes": _csi_node,
    "serviceaccounts": _token,
}
