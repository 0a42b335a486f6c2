"""Facts of a machine beyond those of every pod: capabilities of its runtime, its interfaces, failed calls."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from msgspec.structs import replace

from kubeletx.api import NicStatus, UnitId

from ...model.facts import ActionFailure, Fact, PodFacts, WorkloadFacts

NO_EPHEMERAL: Final = (
    "spec.ephemeralContainers: a machine has no containers beside it: kubectl exec runs commands in its guest, "
    "kubectl attach shows its console"
)


class MachineUnit(Fact, frozen=True, kw_only=True):
    """Facts of the unit of one machine: failed calls, and its network interfaces."""

    power_failure: ActionFailure | None = None
    """Failure of the last change of power."""
    nic_failure: ActionFailure | None = None
    """Failure of the last listing of the machine's interfaces."""
    nic_failures: dict[str, ActionFailure] = {}
    """Interface → failure of its last attach or detach; `retry_at` None if the runtime can never do it."""
    nics: tuple[NicStatus, ...] | None = None
    """The machine's interfaces as last listed; None if never."""
    nics_unit: UnitId | None = None
    nics_at: float | None = None
    nics_stale: bool = False
    """True if an interface was attached or detached since the last listing."""


class MachineFacts(WorkloadFacts, frozen=True, kw_only=True):
    """Facts of a pod that is a machine, by `spec.virtualMachine` or by its runtime.

    `can_...`: the runtime's capabilities.
    """

    reboots: ClassVar[bool] = True
    has_own_kernel: ClassVar[bool] = True
    no_ephemeral: ClassVar[str] = NO_EPHEMERAL
    can_power: bool = False
    can_nics: bool = False
    can_resize: bool = False
    units: dict[str, MachineUnit] = {}

    def edited(self) -> Self:
        """Return the facts without failures of single interfaces, so that these are tried again."""
        if not any(unit.nic_failures for unit in self.units.values()):
            return self
        units = {name: replace(unit, nic_failures={}) for name, unit in self.units.items()}
        return replace(self, units=units)


_NO_UNIT: Final = MachineUnit()
_NO_MACHINE: Final = MachineFacts()


def machine_of_facts(facts: PodFacts) -> MachineFacts:
    """The pod's machine facts; empty ones, without any capability, if the pod is no machine."""
    return facts.of(MachineFacts) or _NO_MACHINE


def machine_unit(facts: PodFacts, name: str) -> MachineUnit:
    """The machine's facts of this unit; empty ones if nothing is known."""
    return machine_of_facts(facts).units.get(name, _NO_UNIT)


def with_machine_unit(facts: PodFacts, name: str, **fields: object) -> PodFacts:
    """Return the pod's facts with these fields of one `MachineUnit` changed."""
    machine = machine_of_facts(facts)
    unit = replace(machine_unit(facts, name), **fields)
    return replace(facts, own=replace(machine, units={**machine.units, name: unit}))
