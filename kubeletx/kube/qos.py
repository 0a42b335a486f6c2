"""The QoS class of a pod: Guaranteed, Burstable or BestEffort.

Only cpu and memory count, and an amount of zero counts as not given. If the pod has pod-level resources, the
containers' resources do not count. A virtual machine counts as the pod's one container. Source: kubelet,
component-helpers qos.
"""

from __future__ import annotations

from typing import Final

from .requests import workloads
from .text.quantity import parse
from .types.core import PodSpec

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"

_COUNTED: Final = ("cpu", "memory")


def qos_class(spec: PodSpec) -> str:
    """Return the QoS class of a pod. Defaults must be set (`set_defaults`): missing requests then equal the limits."""
    pod_level = spec.resources
    if pod_level.limits or pod_level.requests:
        given = [pod_level]
    else:
        given = [item.resources for item in (*spec.init_containers, *workloads(spec))]
    requests = [_amounts(resources.requests) for resources in given]
    limits = [_amounts(resources.limits) for resources in given]
    if not any(requests) and not any(limits):
        return BEST_EFFORT
    everywhere = all(len(of_one) == len(_COUNTED) for of_one in limits)
    return GUARANTEED if everywhere and _sum(requests) == _sum(limits) else BURSTABLE


def _amounts(quantities: dict[str, str]) -> dict[str, int]:
    amounts = {name: parse(quantities[name]).nanos for name in _COUNTED if name in quantities}
    return {name: nanos for name, nanos in amounts.items() if nanos > 0}


def _sum(amounts: list[dict[str, int]]) -> dict[str, int]:
    return {name: total for name in _COUNTED if (total := sum(of_one.get(name, 0) for of_one in amounts))}
