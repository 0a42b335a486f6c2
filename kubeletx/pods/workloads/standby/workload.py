"""`StandbyWorkload`: rules for pods of containers that can be frozen. All other rules are those of plain containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kubeletx.api import SupportsStandby, names
from kubeletx.kube.types.core import ContainerStatus, Pod, PodCondition

from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ..workload import RuntimeTraits, Workload
from .facts import StandbyFacts
from .plan import plan_overrides, plan_standby, settled
from .status import standby_condition


class StandbyWorkload(Workload):
    """Rules for pods of containers on a runtime with `SupportsStandby`, which can freeze them."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> StandbyFacts | None:
        """Return the standby facts of a pod on a runtime with `SupportsStandby`; None on other runtimes.

        Machine pods never get here, since machines come first in the table of workloads.
        """
        return settled(pod, facts) if runtime.capability(SupportsStandby) is not None else None

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan to load the overrides file of a pod from before this agent process; it may have been frozen."""
        plan_overrides(facts, draft)

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Plan the calls that freeze, hibernate or thaw the pod's containers; see `plan_standby`."""
        plan_standby(desired, facts, draft, is_settled=is_settled)

    condition_type: ClassVar[str] = names.STANDBY_CONDITION

    def condition(
        self,
        desired: DesiredPod,
        facts: PodFacts,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> PodCondition | None:
        """Build condition `names.STANDBY_CONDITION`; see `standby_condition`."""
        return standby_condition(desired, facts)
