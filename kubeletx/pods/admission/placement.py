"""Placement checks (A4 in docs/kubelet-parity.md): operating system, node selector, required node affinity."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kubeletx.api.names import RUNTIME_CORDONED, RUNTIME_LABEL_PREFIX, RUNTIME_NOT_READY
from kubeletx.kube.manifests.units import spec_workload_type
from kubeletx.kube.types.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod

from ..model.facts import Rejection, Waiting
from .node import AdmissionNode

OS_LABEL = "kubernetes.io/os"
NODE_AFFINITY = "NodeAffinity"
_NO_MATCH = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"


CORDONED, READY = "cordoned", "ready"


def with_runtime_labels(labels: Mapping[str, str], runtimes: Mapping[str, str]) -> dict[str, str]:
    """Return `labels` with all runtime labels replaced by `runtimes`, their present values.

    `labels` come from the API server, whose copy of the runtime labels may be older.
    """
    others = {key: value for key, value in labels.items() if not key.startswith(RUNTIME_LABEL_PREFIX)}
    return {**others, **runtimes}


def runtime_awaited(pod: Pod, node: AdmissionNode) -> Waiting | None:
    """Return the waiting reason of a pod whose node selector or affinity would match if all runtimes were ready.

    The message names the labels of the runtimes that are not ``ready`` now. None: the pod need not wait, since all
    runtimes are ready or their labels are not the reason that it does not match.
    """
    away = {
        key: value
        for key, value in node.labels.items()
        if key.startswith(RUNTIME_LABEL_PREFIX) and value != READY
    }
    if not away:
        return None
    if check_placement(pod, replace(node, labels={**node.labels, **dict.fromkeys(away, READY)})) is not None:
        return None
    states = ", ".join(f"{key} is {value}" for key, value in away.items())
    is_cordoned = all(value == CORDONED for value in away.values())
    return Waiting(
        reason=RUNTIME_CORDONED if is_cordoned else RUNTIME_NOT_READY,
        message=f"the pod's node selector or affinity does not match the runtimes of this node now: {states}",
    )


def check_system(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject a pod whose spec.os or label kubernetes.io/os differs from the node's operating system.

    A virtual machine has an operating system of its own, so its spec.os is not checked.
    """
    label = pod.metadata.labels.get(OS_LABEL)
    if label is not None and label != node.operating_system:
        return Rejection(
            reason="PodOSSelectorNodeLabelDoesNotMatch",
            message=f"label {OS_LABEL} is {label}, this node runs {node.operating_system}",
        )
    if spec_workload_type(pod) is not None or pod.spec.os is None:
        return None
    if pod.spec.os.name != node.operating_system:
        return Rejection(
            reason="PodOSNotSupported",
            message=f"spec.os.name is {pod.spec.os.name}, this node runs {node.operating_system}",
        )
    return None


def check_placement(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject a pod whose node selector or required node affinity does not match the node's labels."""
    if any(node.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return Rejection(reason=NODE_AFFINITY, message=_NO_MATCH)
    if pod.spec.affinity is None:
        return None
    affinity = pod.spec.affinity.node_affinity
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if selector is None or selects(selector, node.name, node.labels):
        return None
    return Rejection(reason=NODE_AFFINITY, message=_NO_MATCH)


def selects(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Return True if the selector matches the node with this name and these labels."""
    return any(_holds(term, name, labels) for term in selector.node_selector_terms)


def _holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return True if all requirements of the term match; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(_meets(expression, labels) for expression in term.match_expressions) and all(
        _meets(field, fields) for field in term.match_fields
    )


def _meets(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    try:
        number, bound = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
