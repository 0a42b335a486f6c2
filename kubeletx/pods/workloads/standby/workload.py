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
    """Containers on a runtime with `SupportsStandby`."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> StandbyFacts | None:
        """Every pod of such a runtime that is not a machine."""
        return standby_of(facts) if runtime.capability(SupportsStandby) is not None else None

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Read the overrides of a pod that was found again."""
        plan_overrides(facts, draft)

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Bring the units to the wanted power, all or none."""
        plan_standby(desired, facts, draft, is_settled=is_settled)
