"""`choose_victims`: chooses the pods that end so that a critical pod fits (A7 in docs/kubelet-parity.md). Pure.

The classes of pods, from the lowest to the highest, are best effort, burstable, guaranteed, and critical; a critical
pod of lower priority is in a lower class. Pods of a class end only if all pods of the lower classes together would not
free enough. Within a class, the pod that frees most of the missing resources ends first; of equal pods the smaller
one. At last, pods that need not end are taken off the list.

Source: kubelet, pkg/kubelet/preemption and types. Two rules are kubeletx's own: no pod ends without need, and no
critical pod ends while other pods suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from kubeletx.api.names import UNEXPECTED_ADMISSION_ERROR
from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED

from ..model.facts import Rejection
from .node import CPU, MEMORY, PODS, Taken

Missing: TypeAlias = Mapping[str, int]
"""Missing amount by resource name; CPU in millicores; always above 0."""

MESSAGE = "Preempted in order to admit critical pod"


_CLASSES = (BEST_EFFORT, BURSTABLE, GUARANTEED)


def may_preempt(pod: Taken, other: Taken) -> bool:
    """Return True if `pod` may preempt `other`; only critical pods preempt.

    If `other` is critical too, both need a priority, and `pod` needs the higher one.
    """
    if not pod.is_critical:
        return False
    if not other.is_critical:
        return True
    return pod.priority is not None and other.priority is not None and pod.priority > other.priority


def choose_victims(missing: Missing, wanted: Taken, pods: Iterable[Taken]) -> tuple[Taken, ...] | None:
    """Choose the pods that end for `wanted`; None if even ending all candidates would not free enough.

    `missing`: amounts that `wanted` lacks. `pods`: the pods of the node that can be ended; those that `wanted` may not
    preempt are never chosen.
    """
    lower = [pod for pod in pods if may_preempt(wanted, pod)]
    if without(missing, lower):
        return None
    classes = [list(members) for _, members in groupby(sorted(lower, key=_class), key=_class)]
    victims: list[Taken] = []
    while classes:
        highest = classes.pop()
        below = [pod for members in classes for pod in members]
        victims = [*_nearest(highest, without(missing, (*below, *victims))), *victims]
    return _needed(missing, victims)


def no_victims(missing: Missing, wanted: Taken, pods: Iterable[Taken], refusal: Rejection) -> Rejection:
    """Return the rejection of `wanted` if ending other pods cannot free enough; its message names what is missing.

    `missing`, `pods`: as in `choose_victims`. `refusal`: rejection by the resource check, quoted in the message.
    """
    left = without(missing, [pod for pod in pods if may_preempt(wanted, pod)])
    lacks = ", ".join(
        f"{name}: {amount}{'m' if name == CPU else ''}" for name, amount in sorted(left.items())
    )
    return Rejection(
        reason=UNEXPECTED_ADMISSION_ERROR,
        message="Unexpected error while attempting to recover from admission failure: preemption: no set of "
        f"running pods that may end for this critical one would free enough. {refusal.message}. Without all of "
        f"them this would still be missing: {lacks}; lower the pod's requests, or end other critical pods",
    )


def without(missing: Missing, pods: Iterable[Taken]) -> dict[str, int]:
    """Return the amounts that are still missing after these pods have ended; empty if nothing is missing."""
    left = dict(missing)
    for pod in pods:
        left = {name: amount - _amount(pod, name) for name, amount in left.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _class(pod: Taken) -> tuple[bool, int, int]:
    """Return the sort key of a pod's class: best effort, burstable, guaranteed, critical by priority (highest last)."""
    priority = pod.priority if pod.is_critical and pod.priority is not None else 0
    return pod.is_critical, priority, _CLASSES.index(pod.qos)


def _nearest(pods: Sequence[Taken], missing: Missing) -> list[Taken]:
    left, rest, chosen = dict(missing), list(pods), list[Taken]()
    while left and rest:
        now = left
        best = min(rest, key=lambda pod: (_distance(pod, now), _amount(pod, MEMORY), _amount(pod, CPU)))
        rest.remove(best)
        chosen.append(best)
        left = without(left, [best])
    return chosen


def _distance(pod: Taken, missing: Missing) -> float:
    """Return what is still missing if `pod` ends, as the sum over resources of (missing fraction)²; 0: nothing."""
    parts = ((amount - _amount(pod, name)) / amount for name, amount in missing.items())
    return sum(part * part for part in parts if part > 0)


def _needed(missing: Missing, victims: Sequence[Taken]) -> tuple[Taken, ...]:
    """Leave out each victim whose end is not needed because the others free enough; try the highest class first."""
    kept = list(victims)
    for pod in reversed(victims):
        others = [other for other in kept if other is not pod]
        if not without(missing, others):
            kept = others
    return tuple(kept)


def _amount(pod: Taken, name: str) -> int:
    return 1 if name == PODS else pod.amounts.get(name, 0)
