"""`MachineWorkload`: rules for planning and status of machine pods."""

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
    UnitState,
    UnitSummary,
    names,
)
from kubeletx.api.names import MADE_WITH_NICS, MADE_WITH_SIZE
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

from ...model.actions import DropOverride
from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ...model.roles import regular_units
from ..overrides import overrides_of
from ..power import STANDING_BY, Power
from ..standby.plan import TARGETS, settled
from ..standby.status import standby_condition, was_on_standby
from ..workload import RuntimeTraits, Workload
from . import power
from .facts import MachineFacts, machine_of_facts
from .hardware import (
    asked_size,
    made_with_nics,
    plan_devices,
    size_key,
    sized,
    sized_pod,
    wanted_limits,
    wanted_nics,
    with_size,
)
from .spec import build_nic
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
        """Also drop an operator's power command that is older than the last change of the power state in the spec."""
        overrides = overrides_of(facts)
        if overrides is None:
            draft.read_overrides()
            return
        is_stale = overrides.power and not power.is_overridden(desired, facts)
        if is_stale and draft.is_due(facts.overrides_failure):
            draft.do(DropOverride())

    def plan_unit(self, unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        if facts.overrides is not None:
            power.plan_power(unit, desired, facts, draft)
            plan_devices(unit, desired, facts, draft)

    def plan_evacuation(self, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
        """Also resume a machine that ``kubeletx vm`` or powerSpec paused or suspended, as its stop does."""
        for machine in regular_units(desired.pod):
            if (unit := facts.newest(machine.name)) is not None:
                power.plan_step(unit, Power.RUNNING, facts, draft)

    @property
    def resizes_itself(self) -> bool:
        return True

    def may_start(self, desired: DesiredPod, facts: PodFacts) -> bool:
        return facts.overrides is not None and not power.is_wanted_off(desired, facts)

    def is_wanted_off(self, desired: DesiredPod, facts: PodFacts) -> bool:
        return power.is_wanted_off(desired, facts)

    def was_switched_off(self, facts: PodFacts, unit: UnitSummary | None) -> bool:
        return power.was_switched_off(facts, unit)

    def is_kept(self, desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
        if facts.of(MachineFacts) is None:
            return False
        # Until the overrides file is read, a machine that is off may have been switched off by a command.
        return (
            facts.overrides is None
            or power.is_wanted_off(desired, facts)
            or power.was_switched_off(facts, unit)
        )

    def leaves_sandboxes(self, facts: PodFacts) -> bool:
        """Return True if the runtime can switch machines off.

        The end of the machine then need not wait until the pod's network is taken down.
        """
        return machine_of_facts(facts).can_power

    # --- standby ---

    def can_standby(self, facts: PodFacts) -> bool:
        return machine_of_facts(facts).can_standby

    def initial_power(self, desired: DesiredPod) -> Power:
        return power.initial_power(desired)

    def wanted_power(self, desired: DesiredPod, facts: PodFacts) -> Power:
        return power.wanted_power(desired, facts)

    def rest_of(self, desired: DesiredPod, facts: PodFacts) -> Power:
        """RUNNING also while the machine rests because of ``vm pause``, powerSpec or its guest."""
        unit = power.resting_unit(desired, facts)
        if unit is None or not (power.wanted_power(desired, facts) in STANDING_BY or was_on_standby(facts)):
            return Power.RUNNING
        return Power.HIBERNATED if unit.state is UnitState.SUSPENDED else Power.STANDBY

    def next_units(self, desired: DesiredPod, facts: PodFacts, wanted: Power) -> Sequence[UnitSummary]:
        """Empty also for RUNNING if it was not standby that paused or suspended the machine."""
        if wanted is Power.RUNNING:
            unit = power.resting_unit(desired, facts)
            return (unit,) if unit is not None else ()
        newest = (facts.newest(machine.name) for machine in regular_units(desired.pod))
        living = (unit for unit in newest if unit is not None and unit.state.is_alive)
        return tuple(unit for unit in living if unit.state is not TARGETS[wanted])

    def standby_obstacle(self, desired: DesiredPod, facts: PodFacts) -> str:
        for machine in regular_units(desired.pod):
            unit = facts.newest(machine.name)
            if unit is not None and (reason := power.own_hold(facts, unit)):
                return f"machine {unit.name} paused itself: {power.hold_message(facts, unit) or reason}"
        return ""

    # --- resources ---

    def granted(
        self, container: Container, unit: UnitSummary | None, facts: PodFacts
    ) -> ResourceRequirements | None:
        """Return the resources with the size last requested from the runtime; the spec's while that is unknown."""
        size = asked_size(unit, facts) if unit is not None else None
        return with_size(container.resources, size) if size else container.resources

    def wanted(self, container: Container, desired: DesiredPod, facts: PodFacts) -> ResourceRequirements:
        return sized(container.resources, wanted_limits(desired, facts))

    def with_granted(self, pod: Pod, resources: Callable[[Container], ResourceRequirements]) -> Pod | None:
        """Return the pod with the granted size in `spec.virtualMachine`; None if the spec has no such field."""
        if pod.spec.virtual_machine is None:
            return None
        (unit,) = regular_units(pod)
        machine = replace(pod.spec.virtual_machine, resources=resources(unit))
        return replace(pod, spec=replace(pod.spec, virtual_machine=machine))

    def shaped(self, unit: AnyUnit, pod: Pod, facts: PodFacts) -> AnyUnit:
        if not isinstance(unit, VirtualMachine):
            return unit
        return replace(unit, resources=sized(unit.resources, wanted_limits(_desired(pod), facts)))

    def with_overrides(self, spec: UnitSpec, pod: Pod, facts: PodFacts) -> UnitSpec:
        """Annotations record the interfaces and the size with which the machine is created."""
        if not isinstance(spec.detail, Machine):
            return spec
        desired = _desired(pod)
        notes = {
            MADE_WITH_NICS: made_with_nics(desired, facts),
            MADE_WITH_SIZE: size_key(wanted_limits(desired, facts)),
        }
        detail = replace(
            spec.detail,
            power=power.created_power(desired, facts).value,
            nics=tuple(build_nic(nic) for nic in wanted_nics(desired, facts).values()),
        )
        return replace(spec, detail=detail, annotations={**spec.annotations, **notes})

    def counted_pod(self, desired: DesiredPod, facts: PodFacts) -> Pod:
        return sized_pod(desired, facts)

    # --- status ---

    def claims(self, pod: Pod) -> bool:
        return pod.spec.virtual_machine is not None

    def with_status(self, status: PodStatus, pod: Pod, facts: PodFacts) -> PodStatus:
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
        return power.MACHINE_WORDS[unit.state]

    def rest_reason(self, facts: PodFacts, unit: UnitSummary) -> str:
        return power.own_hold(facts, unit)


def _desired(pod: Pod) -> DesiredPod:
    return DesiredPod(uid=pod.uid, pod=pod, source="", spec_hash="")
