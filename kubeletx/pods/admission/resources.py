"""Resource fit (A3): the sum of requests must stay within what the node can give."""

from __future__ import annotations

from ..facts import Rejection
from .node import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, AdmissionNode, Occupancy, Taken

_FIRST = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NATIVE_DOMAIN = "kubernetes.io/"


def check_resources(wanted: Taken, node: AdmissionNode, occupancy: Occupancy) -> Rejection | None:
    """Pods first, then cpu, memory, ephemeral-storage, then all other resources by name."""
    if occupancy.pods + 1 > node.max_pods:
        return _out_of(PODS, 1, occupancy.pods, node.max_pods)
    others = sorted(set(wanted.amounts) - set(_FIRST))
    for name in (*_FIRST, *others):
        requested = wanted.amounts.get(name, 0)
        if requested <= 0 or _is_unlimited(name, node):
            continue
        used, capacity = occupancy.amounts.get(name, 0), node.allocatable.get(name, 0)
        if used + requested > capacity:
            return _out_of(name, requested, used, capacity)
    return None


def _is_unlimited(name: str, node: AdmissionNode) -> bool:
    """Basic resources that nobody measured, and extended ones that this node does not have: a cluster
    may provide these in other ways."""
    return name not in node.allocatable and (name in _FIRST or _is_extended(name))


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def _out_of(name: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        reason=f"OutOf{name}",
        message=f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}",
    )
