"""`MachineWorkload`: rules for planning and status of machine pods. It only calls the other files of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from kubeletx.api import (
    VM,
    Machine,
    SupportsMachine,
    SupportsNics,
    SupportsResize,
    SupportsStandby,
    UnitSpec,
    UnitSummary,
    names,
)
from kubeletx.kube.types.core import (
    AnyUnit,
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
    VirtualMachine,
)

from ...model.actions import DropOverride, ReadOverrides
from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ...model.roles import regular_units
from ..overrides import overrides_of
from ..power import Power
from ..standby.plan import settled
from ..standby.status import standby_condition
from ..workload import RuntimeTraits, Workload
from . import power
from .facts import MachineFacts, machine_of_facts
from .hardware import asked_size, plan_devices, sized, sized_pod, wanted_limits, with_size
from .made import sized_machine, with_overrides
from .status import machine_ready, machine_status


class MachineWorkload(Workload):
    """Rules for a pod that is a virtual machine, where they differ from plain containers.

    Restart policy, probes, images and volumes follow the same rules as for containers.
    """

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> MachineFacts | None:
        """Return the facts of a pod that is a machine by its runtime's workload type or its spec; None for others."""
        if runtime.workload_type != VM and pod.spec.virtual_machine is None:
            return None
        return replace(
            settled(pod, facts, machine_of_facts(facts)),
            can_standby=runtime.capability(SupportsStandby) is not None,
            can_power=runtime.capability(SupportsMachine) is not None,
            can_nics=runtime.capability(SupportsNics) is not None,
            can_resize=runtime.capability(SupportsResize) is not None,
        )

    # --- plan ---

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan the steps before all others.

        If the pod's `PodOverrides` are not loaded yet, load them from disk. Discard an operator's power command that is
        older than the last change of the power state in the spec.
        """
        overrides = overrides_of(facts)
        if overrides is None:
            draft.do(ReadOverrides())
        elif overrides.power and not power.is_overridden(desired, facts):
            draft.do(DropOverride())

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan the next change of power state, size or interfaces, once the overrides file is loaded."""
        if facts.overrides is not None:
            power.plan_power(unit, desired, facts, draft)
            plan_devices(unit, desired, facts, draft)

    @property
    def resizes_itself(self) -> bool:
        """True: `plan_unit` plans the resizes of a machine."""
        return True

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return False until the overrides file is loaded, and while the desired power state is off."""
        return facts.overrides is not None and not power.is_wanted_off(desired, facts)

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return True if the desired power state of the machine is off."""
        return power.is_wanted_off(desired, facts)

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the machine does not run because a command or the spec switched it off."""
        return power.was_switched_off(facts, unit)

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the machine is off on request, or the overrides file with such requests is not loaded yet."""
        return power.is_kept(desired, facts, unit)

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if the runtime can switch machines off.

        The end of the machine then need not wait until the pod's network is taken down.
        """
        return machine_of_facts(facts).can_power

    # --- standby ---

    def can_standby(self, facts: PodFacts) -> bool:
        """Return True if the runtime can freeze and hibernate machines."""
        return machine_of_facts(facts).can_standby

    def initial_power(self, desired: DesiredPod) -> Power:
        """Return the power state of powerSpec or, if that is Running, of annotation ``kubeletx.io/standby``."""
        return power.initial_power(desired)

    def wanted_power(self, desired: DesiredPod, facts: PodFacts) -> Power:
        """Return the desired power state of the machine; see `power.wanted_power`."""
        return power.wanted_power(desired, facts)

    def rest_of(self, desired: DesiredPod, facts: PodFacts) -> Power:
        """Return STANDBY or HIBERNATED if the machine is on standby; RUNNING also if ``vm pause`` paused it."""
        return power.rest_of(desired, facts)

    def next_units(self, desired: DesiredPod, facts: PodFacts, wanted: Power) -> Sequence[UnitSummary]:
        """Return the machine's unit unless it has state `wanted`; see `power.next_units`."""
        return power.next_units(desired, facts, wanted)

    def standby_obstacle(self, desired: DesiredPod, facts: PodFacts) -> str:
        """Return why the guest or its emulator paused itself; empty if it did not."""
        return power.held_text(desired, facts)

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """Return the resources with the size last requested from the runtime; those of the spec while it is unknown."""
        size = asked_size(unit, facts) if unit is not None else None
        return with_size(container.resources, size) if size else container.resources

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        """Return the desired resources of the machine, from the spec or a ``vm resize`` command."""
        return sized(container.resources, wanted_limits(desired, facts))

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """Return the pod with the granted size in `spec.virtualMachine`; None if the spec has no such field."""
        if pod.spec.virtual_machine is None:
            return None
        (unit,) = regular_units(pod)
        machine = replace(pod.spec.virtual_machine, resources=resources(unit))
        return replace(pod, spec=replace(pod.spec, virtual_machine=machine))

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        """Return the machine with the desired limits, from the spec or a ``vm resize`` command."""
        return sized_machine(unit, pod, facts) if isinstance(unit, VirtualMachine) else unit

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """Return the unit's spec with the machine's desired power state and interfaces."""
        return with_overrides(spec, spec.detail, pod, facts) if isinstance(spec.detail, Machine) else spec

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        """Return the pod with the desired size of its machine, from the spec or a ``vm resize`` command."""
        return sized_pod(desired, facts)

    # --- status ---

    def claims(self, pod: Pod) -> bool:
        """Return True if the spec has `virtualMachine`."""
        return pod.spec.virtual_machine is not None

    def with_status(self, status: PodStatus, pod: Pod, facts: PodFacts) -> PodStatus:
        """Return the status with `virtualMachineStatus` set."""
        return replace(status, virtual_machine_status=machine_status(pod, facts, status.container_statuses))

    condition_types: ClassVar[tuple[str, ...]] = (names.VM_READY, names.STANDBY_CONDITION)

    def conditions(
        self,
        desired: DesiredPod,
        facts: PodFacts,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> tuple[PodCondition, ...]:
        """Build `names.VM_READY`, True if the guest runs and is ready, and the condition of all pods on standby.

        `resting`: the pod's condition UnitsRunning, if it has one.
        """
        rests, wanted = self.rest_of(desired, facts), self.wanted_power(desired, facts)
        return (
            machine_ready(containers_ready, resting, statuses),
            *standby_condition(facts, rests, wanted, self.standby_obstacle(desired, facts)),
        )

    def state_word(self, unit: UnitSummary) -> str:
        """Return the word for the machine's state in messages of ``vm`` commands, such as ``off``."""
        return power.MACHINE_WORDS[unit.state]

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Return the reason that the guest or its emulator paused itself; empty if it did not."""
        return power.own_hold(facts, unit)
