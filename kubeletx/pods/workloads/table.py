"""The table of workloads.

The first one that accepts a pod is the pod's; if none does, it is plain containers.
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
"""Workloads by the type of their facts."""

_NO_FACTS: Final = WorkloadFacts()


def workload_of(facts: PodFacts) -> Workload:
    """The workload of the pod; plain containers until its runtime is known."""
    return WORKLOADS.get(type(facts.own), CONTAINERS)


WORKLOAD_CONDITIONS: Final = tuple(
    workload.condition_type for workload in WORKLOADS.values() if workload.condition_type
)
"""Types of the conditions that only pods of one workload have."""


def workload_for(pod: Pod, facts: PodFacts) -> Workload:
    """The workload of the pod; while its runtime is not known, the one that claims its spec."""
    found = workload_of(facts)
    if found is not CONTAINERS:
        return found
    return next((one for one in WORKLOADS.values() if one.claims(pod)), CONTAINERS)


def observed(facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts:
    """Facts of the pod's workload on this runtime."""
    for workload in WORKLOADS.values():
        own = workload.observe(facts, runtime, pod)
        if own is not None:
            return own
    return _NO_FACTS
