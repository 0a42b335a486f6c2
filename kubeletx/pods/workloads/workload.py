"""`Workload`: rules for planning and status that differ between kinds of workloads, such as containers and machines.

The base class has the rules for plain containers. `pods.plan` and `pods.status` call the methods of the pod's workload
at the few places where kinds differ. All methods are pure. Each other kind has a folder; the steps of its actions are
in `pods.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

from kubeletx.api import UnitSpec, UnitSummary
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
from .power import RESTING, Power

T = TypeVar("T")


class RuntimeTraits(Protocol):
    """Properties of the pod's runtime that a workload reads. `RuntimeHandle` implements this protocol."""

    @property
    def workload_type(self) -> str:
        """Type of the workloads that the runtime runs, such as ``container`` or ``vm``."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """Return the plugin's object that implements a ``Supports...`` protocol; None if it has no such object."""
        ...


class Workload:
    """Rules for plain containers. Subclasses for other kinds of workloads override the rules that differ."""

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> WorkloadFacts | None:
        """Return this workload's facts about the pod, with the runtime's present capabilities.

        None if the pod is not of this workload. Plain containers have no such facts.
        """
        return None

    # --- plan ---

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan actions that are needed before the sandbox is created, such as loading the overrides file.

        A pod from before this agent process may have been frozen, and a user may have requested a restart.
        """
        if facts.overrides is None and facts.recovered:
            draft.read_overrides()

    def plan_pod(self, desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
        """Plan actions that concern several units of the pod, while its sandbox is ready. Plain containers need none.

        `is_settled`: no container is due to start, now or after a back-off.
        """

    def plan_evacuation(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan to thaw the frozen units of a pod whose sessions are being closed, which happens inside them.

        Plain containers need none.
        """

    def plan_end(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan actions that an ending pod needs besides its stops. Plain containers need none."""

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan actions for `unit`, the newest unit of a container in the ready sandbox, such as power changes.

        Plain containers need none.
        """

    @property
    def resizes_itself(self) -> bool:
        """True if `plan_unit` plans the resizes; the general rules in `pods.plan` then plan none."""
        return False

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return False while no container of the pod may be started, for example while a machine should be off."""
        return True

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return True if the spec or an operator requests that the pod is off, so that none of its units is started."""
        return False

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the unit was switched off on request. The same unit is then started again, not a new one."""
        return False

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the unit does not count as ended for phase and restart policy, even if it does not run."""
        return False

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if the sandbox of a deleted pod is removed without being stopped first."""
        return False

    # --- standby ---

    def can_standby(self, facts: PodFacts) -> bool:
        """Return True if the pod's runtime can freeze and hibernate its units."""
        return False

    def initial_power(self, desired: DesiredPod) -> Power:
        """Return the power state that the spec and the annotations of the pod request."""
        return Power.RUNNING

    def wanted_power(self, desired: DesiredPod, facts: PodFacts) -> Power:
        """Return the desired power state, by the spec, the annotations, the last command and requests in memory."""
        return Power.RUNNING

    def rest_of(self, desired: DesiredPod, facts: PodFacts) -> Power:
        """Return STANDBY or HIBERNATED if all living units rest in this state, else RUNNING."""
        return Power.RUNNING

    def next_units(self, desired: DesiredPod, facts: PodFacts, wanted: Power) -> Sequence[UnitSummary]:
        """Return the units to bring to state `wanted` next; empty if all living units have it.

        `wanted`: RUNNING, STANDBY or HIBERNATED.
        """
        return ()

    def standby_obstacle(self, desired: DesiredPod, facts: PodFacts) -> str:
        """Return why the pod can be neither frozen nor thawed now, such as an I/O error of its guest; else empty."""
        return ""

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """Return the granted resources of the container; None: use the general rule in `plan.resize_container`."""
        return None

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        """Return the resources that the container should have, by its spec or an operator's request."""
        return container.resources

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """Return a copy of the pod in which the granted resources of its units replace the spec's.

        None: use the general rule in `plan.resize_container`. `resources`: function that returns the granted resources
        of a container.
        """
        return None

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        """Return the container or machine with the resources that its spec or an operator requests for it."""
        return unit

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """Return the unit's spec with the changes that operators requested in addition to the pod's spec."""
        return spec

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        """Return the pod with the resources that admission must reserve for it, operators' requests included."""
        return desired.pod

    # --- status ---

    def claims(self, pod: Pod) -> bool:
        """Return True if the pod is of this workload by its spec alone; used before its runtime is known."""
        return False

    def with_status(self, status: PodStatus, pod: Pod, facts: PodFacts) -> PodStatus:
        """Return the pod's status with the fields that this workload adds."""
        return status

    condition_types: ClassVar[tuple[str, ...]] = ()
    """Types of the conditions that only pods of this workload have."""

    def conditions(
        self,
        desired: DesiredPod,
        facts: PodFacts,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> tuple[PodCondition, ...]:
        """Build the pod's conditions of `condition_types`, as far as the pod has them.

        `containers_ready`: the pod's condition ContainersReady. `resting`: its condition UnitsRunning, which exists
        only while a unit is paused, suspended or off. `statuses`: statuses of init and regular containers.
        """
        return ()

    def state_word(self, unit: UnitSummary) -> str:
        """Return the unit's state as a word for messages, such as ``paused``."""
        return unit.state.value

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Return the reason that a unit is paused without a request, such as an I/O error; empty if there is none."""
        return ""

    def resting(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Return a text about a unit that is paused, suspended or switched off, such as ``web is paused``.

        Empty if the unit is in another state.
        """
        if unit.state in RESTING:
            why = self.rest_reason(facts, unit)
            return f"{unit.name} is {self.state_word(unit)}" + (f" ({why})" if why else "")
        return f"{unit.name} is off" if self.was_switched_off(facts, unit) else ""
