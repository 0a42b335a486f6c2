"""`Workload`: the part of plan and status that differs between kinds of workloads. The base is plain containers.

The rules of `plan` and `status` ask the pod's workload at the few places where workloads differ. Each answer is pure. The
steps of a workload's own actions are in its folder, too (`steps.py`); `steps/dispatch.py` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

from kubeletx.api import UnitSpec, UnitState, UnitSummary
from kubeletx.kube.types.core import (
    AnyUnit,
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
)

from ..model.draft import Draft
from ..model.facts import DesiredPod, PodFacts, WorkloadFacts

T = TypeVar("T")


class RuntimeTraits(Protocol):
    """Part of the bound runtime that a workload reads; `RuntimeHandle` has it."""

    @property
    def workload_type(self) -> str:
        """The type of workloads it runs."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """The plugin's object for one of the Supports... protocols, or None."""
        ...


class Workload:
    """Answers for plain containers; a sibling overrides what differs."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts | None:
        """The workload's own facts with the runtime's present capabilities; None if the pod is not of this workload."""
        return None

    # --- plan ---

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan what comes before a sandbox: reading the written overrides."""

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Plan for the pod as a whole while its sandbox is ready. `is_settled`: no unit is due to start, now or later."""

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan for the newest unit of a container in the ready sandbox."""

    @property
    def resizes_itself(self) -> bool:
        """True if `plan_unit` resizes, so that no container and no pod is resized by the neutral rules."""
        return False

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return False while nothing of the pod may be started."""
        return True

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return True if the pod is to be off on request, so that nothing of it is started."""
        return False

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the unit ended by a requested switch-off: the same unit is started again."""
        return False

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if a unit that does not run has not ended."""
        return False

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if a deletion removes the sandbox without a stop before."""
        return False

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """Resources that the container has; None: those of the neutral rules."""
        return None

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        """Resources that are wanted for the container."""
        return container.resources

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """The pod with what its unit has; None: the neutral rules look at each container."""
        return None

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        """The container or machine with the resources that are wanted for it."""
        return unit

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """The specification of a unit with what is wanted beside the pod's spec."""
        return spec

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        """The pod with the resources that are wanted for it now, for what it takes of the node."""
        return desired.pod

    # --- status ---

    def claims(self, pod: Pod) -> bool:
        """Return True if the spec alone makes the pod one of this workload, before its runtime is known."""
        return False

    def with_status(self, status: PodStatus, pod: Pod, facts: PodFacts) -> PodStatus:
        """The status with what this workload adds."""
        return status

    condition_type: ClassVar[str] = ""
    """Type of the condition that only pods of this workload have; empty: none."""

    def condition(
        self,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> PodCondition | None:
        """The condition of this workload. `resting`: UnitsRunning, if it is False."""
        return None

    def state_word(self, unit: UnitSummary) -> str:
        """The state of a unit in the words of the workload."""
        return unit.state.value

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Reason a unit rests although nothing asked for it; else empty."""
        return ""

    def resting(self, facts: PodFacts, unit: UnitSummary) -> str:
        """State of a newest unit that rests, in words; empty if it does not."""
        if unit.state in (UnitState.PAUSED, UnitState.SUSPENDED):
            why = self.rest_reason(facts, unit)
            return f"{unit.name} is {self.state_word(unit)}" + (f" ({why})" if why else "")
        return f"{unit.name} is off" if self.was_switched_off(facts, unit) else ""
