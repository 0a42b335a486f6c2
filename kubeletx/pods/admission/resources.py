"""Resource fit (A3 in docs/kubelet-parity.md): all pods' requests together must not exceed the node's allocatable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..model.facts import Rejection
from .node import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, AdmissionNode, Occupancy, Taken

_FIRST = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NATIVE_DOMAIN = "kubernetes.io/"


class Shortage(NamedTuple):
    """A resource of which the node has too little left for a pod. CPU in millicores, everything else in whole units.

    `used`: requests of the pods that are there already. `capacity`: allocatable amount of the node.
    """

    name: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        return self.used + self.requested - self.capacity


def check_resources(wanted: Taken, node: AdmissionNode, occupancy: Occupancy) -> Rejection | None:
    """Reject the pod for the first resource of `shortages`; None if everything fits."""
    first = next(shortages(wanted, node, occupancy), None)
    return out_of(first) if first is not None else None


def shortages(wanted: Taken, node: AdmissionNode, occupancy: Occupancy) -> Iterator[Shortage]:
    """Yield each resource of which too little is left: pods, cpu, memory, ephemeral-storage, then the others by name."""
    if occupancy.pods + 1 > node.max_pods:
        yield Shortage(PODS, 1, occupancy.pods, node.max_pods)
    others = sorted(set(wanted.amounts) - set(_FIRST))
    for name in (*_FIRST, *others):
        requested = wanted.amounts.get(name, 0)
        if requested <= 0 or _is_unlimited(name, node):
            continue
        used, capacity = occupancy.amounts.get(name, 0), node.allocatable.get(name, 0)
        if used + requested > capacity:
            yield Shortage(name, requested, used, capacity)


def _is_unlimited(name: str, node: AdmissionNode) -> bool:
    """Return True if the node does not limit this resource.

    This is so for cpu, memory and ephemeral-storage if they were not measured, and for extended resources that the node
    does not list: a cluster may provide those in other ways.
    """
    return name not in node.allocatable and (name in _FIRST or _is_extended(name))


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def out_of(short: Shortage) -> Rejection:
    """Return the rejection for this shortage, with the kubelet's reason (such as OutOfcpu) and message."""
    return Rejection(
        reason=f"OutOf{short.name}",
        message=f"Node didn't have enough resource: {short.name}, requested: {short.requested}, "
        f"used: {short.used}, capacity: {short.capacity}",
    )
