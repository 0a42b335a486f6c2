"""`StandbyWorkload`: a pod of containers that may be frozen. In all else it is one of plain containers."""

from __future__ import annotations

from kubeletx.api import SupportsStandby
from kubeletx.kube.types.core import Pod

from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ..workload import RuntimeTraits, Workload
from .facts import StandbyFacts, standby_of
from .plan import plan_overrides, plan_standby


class StandbyWorkload(Workload):
    """Rules for pods of containers on a runtime with `SupportsStandby`."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> StandbyFacts | None:
        """Facts of a pod on a runtime with `SupportsStandby`; else None.

        Machines come before it in the table of workloads.
        """
        return standby_of(facts) if runtime.capability(SupportsStandby) is not None else None

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan to read the overrides file of a pod that was found at start."""
        plan_overrides(facts, draft)

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Plan the calls that bring the units to the wanted power, all of them or none."""
        plan_standby(desired, facts, draft, is_settled=is_settled)
