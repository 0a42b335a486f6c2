"""Which pods end so that a critical one has room (A7). Pure.

    what is missing ─► guaranteed ones, if all others together are not enough
                    ─► burstable ones, if those and all best effort ones are not enough
                    ─► best effort ones for the rest                  ─► without those that are not needed

Within a class the pod goes first that leaves least to be found, and of equal ones the smaller, so that few go.
Critical pods never go. Source: kubelet, pkg/kubelet/preemption; that nobody goes in vain is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED

from .node import CPU, MEMORY, PODS, Taken

Missing: TypeAlias = Mapping[str, int]
"""Resource name to how much of it is missing; always more than nothing."""

MESSAGE = "Preempted in order to admit critical pod"


def choose_victims(missing: Missing, pods: Iterable[Taken]) -> tuple[Taken, ...] | None:
    """Who has to go; None: all of them together would not be enough."""
    lower = [pod for pod in pods if not pod.is_critical]
    if without(missing, lower):
        return None
    best_effort, burstable, guaranteed = (
        [pod for pod in lower if pod.qos == qos] for qos in (BEST_EFFORT, BURSTABLE, GUARANTEED)
    )
    high = _nearest(guaranteed, without(missing, (*best_effort, *burstable)))
    middle = _nearest(burstable, without(missing, (*best_effort, *high)))
    low = _nearest(best_effort, without(missing, (*middle, *high)))
    return _needed(missing, (*low, *middle, *high))


def without(missing: Missing, pods: Iterable[Taken]) -> dict[str, int]:
    """What is still missing once these pods are gone."""
    left = dict(missing)
    for pod in pods:
        left = {name: amount - _amount(pod, name) for name, amount in left.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


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
    """Each resource weighs the same: the square of the part that is still missing without the pod."""
    parts = ((amount - _amount(pod, name)) / amount for name, amount in missing.items())
    return sum(part * part for part in parts if part > 0)


def _needed(missing: Missing, victims: Sequence[Taken]) -> tuple[Taken, ...]:
    """Spare whoever another one made unnecessary, the highest class first."""
    kept = list(victims)
    for pod in reversed(victims):
        others = [one for one in kept if one is not pod]
        if not without(missing, others):
            kept = others
    return tuple(kept)


def _amount(pod: Taken, name: str) -> int:
    return 1 if name == PODS else pod.amounts.get(name, 0)
