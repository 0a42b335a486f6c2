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
        """Type of the workloads that the runtime runs, such as ``container`` or ``vm``."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """The plugin's object for one of the Supports... protocols, or None."""
        ...


class Workload:
    """Rules for plain containers; the subclass of another workload overrides those that differ."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts | None:
        """The workload's own facts with the runtime's present capabilities; None if the pod is not of this workload."""
        return None

    # --- plan ---

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan actions that come before a sandbox, such as reading the overrides file.

        Plain containers have none.
        """

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Plan for the pod as a whole while its sandbox is ready. `is_settled`: no unit is due to start, now or later."""

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan for the newest unit of a container in the ready sandbox."""

    @property
    def resizes_itself(self) -> bool:
        """True if `plan_unit` plans resizes; the rules of `plan` then resize neither pod nor containers."""
        return False

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return False while no unit of the pod may be started."""
        return True

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return True if the pod is to be off on request, so that nothing of it is started."""
        return False

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the unit ended by a requested switch-off: the same unit is started again."""
        return False

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if a unit that does not run counts as not ended, for phase and restart policy."""
        return False

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if a deletion removes the sandbox without stopping it first."""
        return False

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """Resources that the container has; None: those that `plan.resize_container` finds."""
        return None

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        """Resources that are wanted for the container."""
        return container.resources

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """The pod with what its one unit has; None: `plan.resize_container` handles each container.

        `resources`: returns the granted resources of a container.
        """
        return None

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        """The container or machine with the resources that are wanted for it."""
        return unit

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """Return the specification of a unit with what operators requested outside the pod's spec."""
        return spec

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        """The pod with the resources that are wanted for it now, as admission counts it."""
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
        """The condition of this workload; None: it has none.

        `resting`: condition UnitsRunning, if that is False.
        """
        return None

    def state_word(self, unit: UnitSummary) -> str:
        """The state of a unit in the words of the workload."""
        return unit.state.value

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Reason that a unit paused without a request; empty if it did not."""
        return ""

    def resting(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Text about a newest unit that is paused, suspended or switched off, such as ``web is paused``.

        Else empty.
        """
        if unit.state in (UnitState.PAUSED, UnitState.SUSPENDED):
            why = self.rest_reason(facts, unit)
            return f"{unit.name} is {self.state_word(unit)}" + (f" ({why})" if why else "")
        return f"{unit.name} is off" if self.was_switched_off(facts, unit) else ""
