"""Facts that only machine pods have: capabilities of the runtime, network interfaces, failed calls."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from msgspec.structs import replace

from kubeletx.api import NicStatus, UnitId

from ...model.facts import ActionFailure, Fact, PodFacts
from ..standby.facts import StandbyFacts

NO_EPHEMERAL: Final = (
    "spec.ephemeralContainers: a machine has no ephemeral containers: kubectl exec runs commands in its guest, "
    "kubectl attach shows its console"
)


class MachineUnit(Fact, frozen=True, kw_only=True):
    """Facts of one machine: its failed calls and its network interfaces."""

    power_failure: ActionFailure | None = None
    """Failure of the last power change; None if it succeeded."""
    nic_failure: ActionFailure | None = None
    """Failure of the last listing of the machine's interfaces; None if it succeeded."""
    nic_failures: dict[str, ActionFailure] = {}
    """Interface name → failure of its last attach or detach; `retry_at` None if the runtime can never do it."""
    nics: tuple[NicStatus, ...] | None = None
    """Interfaces of unit `nics_unit` as listed at `nics_at` (monotonic); None if they were never listed."""
    nics_unit: UnitId | None = None
    nics_at: float | None = None
    nics_stale: bool = False
    """True if the interfaces must be listed again, because one was attached or detached or a call failed."""


class MachineFacts(StandbyFacts, frozen=True, kw_only=True):
    """Facts of a machine pod: one with `spec.virtualMachine`, or on a runtime for virtual machines.

    `can_standby`, `can_power`, `can_nics`, `can_resize`: the runtime can freeze a machine, and change its power state,
    its network interfaces and its size. `units`: facts by the name of the machine.
    """

    reboots: ClassVar[bool] = True
    has_own_kernel: ClassVar[bool] = True
    noun: ClassVar[str] = "machine"
    no_ephemeral: ClassVar[str] = NO_EPHEMERAL
    can_standby: bool = False
    can_power: bool = False
    can_nics: bool = False
    can_resize: bool = False
    units: dict[str, MachineUnit] = {}

    def edited(self) -> Self:
        units = {
            name: replace(unit, nic_failures={}) if unit.nic_failures else unit
            for name, unit in self.units.items()
        }
        return replace(super().edited(), units=units)


_NO_UNIT: Final = MachineUnit()
_NO_MACHINE: Final = MachineFacts()


def machine_of_facts(facts: PodFacts) -> MachineFacts:
    """Return the pod's machine facts; facts without any capability if it is not a machine pod."""
    return facts.of(MachineFacts) or _NO_MACHINE


def machine_unit(facts: PodFacts, name: str) -> MachineUnit:
    """Return the facts of the machine with this name; empty facts if nothing is known."""
    return machine_of_facts(facts).units.get(name, _NO_UNIT)


def with_machine_unit(facts: PodFacts, name: str, **fields: object) -> PodFacts:
    """Return the pod's facts with these fields changed in the `MachineUnit` of machine `name`."""
    machine = machine_of_facts(facts)
    unit = replace(machine_unit(facts, name), **fields)
    return replace(facts, own=replace(machine, units={**machine.units, name: unit}))
