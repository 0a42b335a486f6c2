"""Facts of a machine beyond those of every pod: what its runtime can do for one, its interfaces, failures of its verbs."""

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
    """Facts of one machine's unit."""

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
    """Facts of a pod that is a machine, in either spelling. `can_...`: capabilities of its runtime."""

    reboots: ClassVar[bool] = True
    has_own_kernel: ClassVar[bool] = True
    no_ephemeral: ClassVar[str] = NO_EPHEMERAL
    can_power: bool = False
    can_nics: bool = False
    can_resize: bool = False
    units: dict[str, MachineUnit] = {}

    def edited(self) -> Self:
        """Without the failures of single interfaces."""
        if not any(unit.nic_failures for unit in self.units.values()):
            return self
        units = {name: replace(unit, nic_failures={}) for name, unit in self.units.items()}
        return replace(self, units=units)


_NO_UNIT: Final = MachineUnit()
_NO_MACHINE: Final = MachineFacts()


def machine_of_facts(facts: PodFacts) -> MachineFacts:
    """The machine's facts; those of a machine whose runtime can nothing if the pod is none."""
    return facts.of(MachineFacts) or _NO_MACHINE


def machine_unit(facts: PodFacts, name: str) -> MachineUnit:
    """The machine's facts of this unit; empty ones if nothing is known."""
    return machine_of_facts(facts).units.get(name, _NO_UNIT)


def with_machine_unit(facts: PodFacts, name: str, **fields: object) -> PodFacts:
    """The facts with these of one unit changed."""
    machine = machine_of_facts(facts)
    unit = replace(machine_unit(facts, name), **fields)
    return replace(facts, own=replace(machine, units={**machine.units, name: unit}))
