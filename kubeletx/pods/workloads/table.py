"""Table of the kinds of workloads, and the choice of a pod's workload.

The first workload that accepts a pod is used. If none does, the rules for plain containers apply.
"""

from __future__ import annotations

from typing import Final

from kubeletx.kube.types.core import Pod, PodStatus

from ..model.facts import DesiredPod, PodFacts, WorkloadFacts
from .machine.facts import MachineFacts
from .machine.workload import MachineWorkload
from .power import Power, strongest
from .standby.facts import StandbyFacts, find_standby
from .standby.status import HIBERNATED, STANDBY
from .standby.workload import StandbyWorkload
from .workload import RuntimeTraits, Workload

CONTAINERS: Final = Workload()
WORKLOADS: Final[dict[type[WorkloadFacts], Workload]] = {
    MachineFacts: MachineWorkload(),
    StandbyFacts: StandbyWorkload(),
}
"""Class of a workload's facts → the rules of this workload; all but plain containers."""

_NO_FACTS: Final = WorkloadFacts()


def workload_of(facts: PodFacts) -> Workload:
    """Return the rules of the pod's workload; the rules of plain containers while its runtime is not known."""
    return WORKLOADS.get(type(facts.own), CONTAINERS)


WORKLOAD_CONDITIONS: Final = frozenset(
    kind for workload in WORKLOADS.values() for kind in workload.condition_types
)
"""Types of the pod conditions that only pods of one kind of workload have."""


def workload_for(pod: Pod, facts: PodFacts) -> Workload:
    """Return the rules of the pod's workload.

    While its runtime is not known, the workload is chosen by the pod's spec (`Workload.claims`).
    """
    known = workload_of(facts)
    if known is not CONTAINERS:
        return known
    return next((workload for workload in WORKLOADS.values() if workload.claims(pod)), CONTAINERS)


def observed(facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts:
    """Return the workload facts of a pod that runs on this runtime, updated from `facts.own`."""
    for workload in WORKLOADS.values():
        own = workload.observe(facts, runtime, pod)
        if own is not None:
            return own
    return _NO_FACTS


_UNUSED: Final = {Power.STANDBY: ("cpu",), Power.HIBERNATED: ("cpu", "memory")}
_OF_REASON: Final = {STANDBY: _UNUSED[Power.STANDBY], HIBERNATED: _UNUSED[Power.HIBERNATED]}


def unused_resources(desired: DesiredPod, facts: PodFacts) -> tuple[str, ...]:
    """Return the resources that a frozen pod does not use: CPU, and memory if it is hibernated; empty if it runs.

    Also empty once the pod should run again, before the first container is thawed.
    """
    if desired.is_ending:
        return ()
    if facts.snapshot is None:
        return unused_by(facts.previous_status)
    workload = workload_of(facts)
    if not workload.can_standby(facts):
        return ()
    rests = workload.rest_of(desired, facts)
    is_unread = facts.overrides is None and facts.recovered  # the stored request is not known yet
    return _UNUSED.get(rests if is_unread else strongest((rests, workload.wanted_power(desired, facts))), ())


def unused_by(status: PodStatus | None) -> tuple[str, ...]:
    """Return `unused_resources` from a stored status; used after a restart until the runtime has listed the pod."""
    condition = find_standby(status)
    if condition is None or condition.status != "True":
        return ()
    return _OF_REASON.get(condition.reason or "", ())
