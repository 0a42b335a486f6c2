"""Nodes in the API server double: defaults, admission and allowed changes.

Source: kubernetes, pkg/registry/core/node/strategy.go; plugin/pkg/admission/nodetaint;
pkg/apis/core/v1/defaults.go SetDefaults_NodeStatus.
"""

from __future__ import annotations

from typing import Final

from .errors import Json, invalid
from .resources import resource
from .status_rules import node_status_causes
from .typed_fields import node_status

NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def admit_node(node: Json) -> Json:
    """Return a new node with defaults and the taint not-ready.

    In a cluster, the node controller removes the taint once the node is ready.
    """
    spec = dict(node.get("spec") or {})
    taints = list(spec.get("taints") or [])
    if not any(taint.get("key") == NOT_READY["key"] for taint in taints):
        taints.append(dict(NOT_READY))
    return {**node, "spec": {**spec, "taints": taints}, "status": _defaulted(node.get("status") or {})}


def change_node(old: Json, new: Json) -> Json:
    """Return the node to store when it is changed through the main resource: `new` with the status of `old`."""
    return {**new, "spec": new.get("spec") or {}, "status": old.get("status", {})}


def change_node_status(old: Json, new: Json) -> Json:
    """Return the node to store when its status is changed: `new` with the spec of `old`.

    So labels and annotations may change too. Raises StatusError 422 if the status is invalid.
    """
    status = _defaulted(new.get("status") or {})
    if causes := node_status_causes(status):
        raise invalid(resource("nodes"), old["metadata"]["name"], causes)
    return {**new, "spec": old.get("spec", {}), "status": status}


def _defaulted(status: Json) -> Json:
    allocatable = {**status.get("capacity", {}), **(status.get("allocatable") or {})}
    return node_status({**status, "allocatable": allocatable} if allocatable else status)
