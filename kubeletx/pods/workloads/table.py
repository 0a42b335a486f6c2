"""Table of the kinds of workloads, and the choice of a pod's workload.

The first workload that accepts a pod is used. If none does, the rules for plain containers apply.
"""

from __future__ import annotations

from typing import Final

from kubeletx.kube.types.core import Pod

from ..model.facts import PodFacts, WorkloadFacts
from .machine.facts import MachineFacts
from .machine.workload import MachineWorkload
from .standby.facts import StandbyFacts
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
    """Return the rules of the pod's workload; those of plain containers while its runtime is not known."""
    return WORKLOADS.get(type(facts.own), CONTAINERS)


WORKLOAD_CONDITIONS: Final = frozenset(
    kind for workload in WORKLOADS.values() for kind in workload.condition_types
)
"""Types of the pod conditions that only pods of one kind of workload have."""


def workload_for(pod: Pod, facts: PodFacts) -> Workload:
    """Return the rules of the pod's workload.

    While its runtime is not known, the workload is chosen by the pod's spec (`Workload.claims`).
    """
    found = workload_of(facts)
    if found is not CONTAINERS:
        return found
    return next((one for one in WORKLOADS.values() if one.claims(pod)), CONTAINERS)


def observed(facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts:
    """Return the workload facts of a pod that runs on this runtime, updated from `facts.own`."""
    for workload in WORKLOADS.values():
        own = workload.observe(facts, runtime, pod)
        if own is not None:
            return own
    return _NO_FACTS
