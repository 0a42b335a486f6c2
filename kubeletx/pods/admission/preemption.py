"""Choice of pods that end to make room for a critical one (A7 in docs/kubelet-parity.md). Pure.

    what is missing ─► critical ones of a lower priority, if all that are not critical are not enough
                    ─► guaranteed ones, if all others together are not enough
                    ─► burstable ones, if those and all best effort ones are not enough
                    ─► best effort ones for the rest                  ─► without those that are not needed

Within a class the pod that frees most of the missing resources ends first, and of equal ones the smaller.
Among critical pods the lower priority is the lower class. Source: kubelet, pkg/kubelet/preemption and types. The rules
that no pod ends without need, and no critical pod while others suffice, are those of kubeletx.
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
"""Resource name to the missing amount, always above 0."""

MESSAGE = "Preempted in order to admit critical pod"


_CLASSES = (BEST_EFFORT, BURSTABLE, GUARANTEED)


def may_preempt(pod: Taken, other: Taken) -> bool:
    """Return True if `pod` may preempt `other`: a critical one only by higher priority, if both have one."""
    if not pod.is_critical:
        return False
    if not other.is_critical:
        return True
    return pod.priority is not None and other.priority is not None and pod.priority > other.priority


def choose_victims(missing: Missing, wanted: Taken, pods: Iterable[Taken]) -> tuple[Taken, ...] | None:
    """Choose the pods that end for `wanted`; None if even all that may end would not free enough."""
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
    """Rejection of `wanted` when no pod can make way for it; names the missing resource.

    `refusal`: the rejection that started the search for victims.
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
    """Amounts still missing once these pods are gone; empty if nothing is."""
    left = dict(missing)
    for pod in pods:
        left = {name: amount - _amount(pod, name) for name, amount in left.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _class(pod: Taken) -> tuple[bool, int, int]:
    """Sort key of a pod's class: best effort, burstable, guaranteed, critical by priority; higher ones end later."""
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
    """Distance to enough room if `pod` ends: the sum over resources of (missing part)²; 0 is enough."""
    parts = ((amount - _amount(pod, name)) / amount for name, amount in missing.items())
    return sum(part * part for part in parts if part > 0)


def _needed(missing: Missing, victims: Sequence[Taken]) -> tuple[Taken, ...]:
    """Remove the victims that are not needed because the others free enough, highest class first."""
    kept = list(victims)
    for pod in reversed(victims):
        others = [one for one in kept if one is not pod]
        if not without(missing, others):
            kept = others
    return tuple(kept)


def _amount(pod: Taken, name: str) -> int:
    return 1 if name == PODS else pod.amounts.get(name, 0)
