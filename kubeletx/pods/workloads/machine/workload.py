"""`MachineWorkload`: the part of plan and status that only machines have. Composition only."""

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
from ..workload import RuntimeTraits, Workload
from . import power
from .facts import MachineFacts, machine_of_facts
from .hardware import asked_size, plan_devices, sized, sized_pod, wanted_limits, with_size
from .made import sized_machine, with_overrides
from .status import machine_ready, machine_status


class MachineWorkload(Workload):
    """Rules for a pod that is a machine.

    Restart policy, probes, images and volumes are those of every pod.
    """

    def observe(self, facts: PodFacts, runtime: RuntimeTraits, pod: Pod) -> MachineFacts | None:
        """Facts of a pod that is a machine by its runtime's type or by its spec; None if it is none."""
        if runtime.workload_type != VM and pod.spec.virtual_machine is None:
            return None
        return replace(
            machine_of_facts(facts),
            can_power=runtime.capability(SupportsMachine) is not None,
            can_nics=runtime.capability(SupportsNics) is not None,
            can_resize=runtime.capability(SupportsResize) is not None,
        )

    # --- plan ---

    def plan_first(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan reading the overrides once; drop a power command if the spec's power changed since."""
        overrides = overrides_of(facts)
        if overrides is None:
            draft.do(ReadOverrides())
        elif overrides.power and not power.is_overridden(desired, facts):
            draft.do(DropOverride())

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Plan the next step towards the wanted power, size and interfaces, once the overrides are read."""
        if facts.overrides is not None:
            power.plan_power(unit, desired, facts, draft)
            plan_devices(unit, desired, facts, draft)

    @property
    def resizes_itself(self) -> bool:
        """True: `plan_unit` changes the size of a machine."""
        return True

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return False until the overrides are read, and while the machine is to be off."""
        return facts.overrides is not None and not power.is_wanted_off(desired, facts)

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        """Return True if the machine is to be off."""
        return power.is_wanted_off(desired, facts)

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the machine was switched off on request of a command or the spec."""
        return power.was_switched_off(facts, unit)

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        """Return True if the machine is off on request, or requests are not read yet."""
        return power.is_kept(desired, facts, unit)

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if the runtime can switch machines off.

        The end of a machine need not wait for that of the pod's network.
        """
        return machine_of_facts(facts).can_power

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """The size that was last requested from the runtime; until one is known, that of the spec."""
        size = asked_size(unit, facts) if unit is not None else None
        return with_size(container.resources, size) if size else container.resources

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        """Wanted resources of the container; those of a machine may come from a command."""
        return sized(container.resources, wanted_limits(desired, facts))

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """The pod with the granted size of the machine in its spec; None if the spec has none."""
        if pod.spec.virtual_machine is None:
            return None
        (unit,) = regular_units(pod)
        machine = replace(pod.spec.virtual_machine, resources=resources(unit))
        return replace(pod, spec=replace(pod.spec, virtual_machine=machine))

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        """The machine with the wanted limits, from the spec or a command."""
        return sized_machine(unit, pod, facts) if isinstance(unit, VirtualMachine) else unit

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """Return the specification with the wanted power and interfaces of the machine."""
        return with_overrides(spec, spec.detail, pod, facts) if isinstance(spec.detail, Machine) else spec

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        """The pod with the size of the spec or of a command."""
        return sized_pod(desired, facts)

    # --- status ---

    def claims(self, pod: Pod) -> bool:
        """Return True if the spec has `virtualMachine`."""
        return pod.spec.virtual_machine is not None

    def with_status(self, status: PodStatus, pod: Pod, facts: PodFacts) -> PodStatus:
        """Return the status with `virtualMachineStatus` set."""
        return replace(status, virtual_machine_status=machine_status(pod, facts, status.container_statuses))

    condition_type: ClassVar[str] = names.VM_READY

    def condition(
        self,
        containers_ready: PodCondition,
        resting: PodCondition | None,
        statuses: Sequence[ContainerStatus],
    ) -> PodCondition:
        """Condition of machine pods; see `machine_ready`."""
        return machine_ready(containers_ready, resting, statuses)

    def state_word(self, unit: UnitSummary) -> str:
        """The state of a unit as messages of ``vm`` commands name it."""
        return power.MACHINE_WORDS[unit.state]

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        """Reason the guest or its emulator paused itself; empty if it did not."""
        return power.own_hold(facts, unit)
