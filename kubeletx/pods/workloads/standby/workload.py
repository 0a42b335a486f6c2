"""`StandbyWorkload`: rules for pods of containers that can be frozen. Otherwise plain containers' rules apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kubeletx.api import SupportsStandby, UnitSummary, names
from kubeletx.kube.types.core import ContainerStatus, Pod, PodCondition

from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ..power import Power
from ..workload import RuntimeTraits, Workload
from . import plan
from .facts import StandbyFacts, standby_of
from .status import rest_of, standby_condition


class StandbyWorkload(Workload):
    """Rules for pods of containers on a runtime with `SupportsStandby`, which can freeze them."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> StandbyFacts | None:
        """Return the standby facts of a pod on a runtime with `SupportsStandby`; None on other runtimes.

        Machine pods never get here, since machines come first in the table of workloads.
        """
        if runtime.capability(SupportsStandby) is None:
            return None
        return plan.settled(pod, facts, standby_of(facts))

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        plan.plan_standby(desired, facts, draft, is_settled=is_settled)

    def plan_evacuation(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        plan.plan_standby(desired, facts, draft, is_settled=False)

    def plan_end(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        plan.plan_thaw_for_stop(desired, facts, draft)

    # --- standby ---

    def can_standby(self, facts: PodFacts) -> bool:
        return True

    def initial_power(self, desired: DesiredPod) -> Power:
        return plan.initial_power(desired.pod)

    def wanted_power(self, desired: DesiredPod, facts: PodFacts) -> Power:
        return plan.wanted_power(desired, facts)

    def rest_of(self, desired: DesiredPod, facts: PodFacts) -> Power:
        return rest_of(desired, facts)

    def next_units(self, desired: DesiredPod, facts: PodFacts, wanted: Power) -> Sequence[UnitSummary]:
        return plan.next_units(desired, facts, wanted)

    # --- status ---

    condition_types: ClassVar[tuple[str, ...]] = (names.STANDBY_CONDITION,)

    def conditions(
        self,
        desired: DesiredPod,
        facts: PodFacts,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> tuple[PodCondition, ...]:
        return standby_condition(facts, self.rest_of(desired, facts), self.wanted_power(desired, facts))
