r"""Desired power state of a machine, from the spec or a command, and the next call that leads to it. Pure.

    state \ desired  running     paused       suspended   off         standby    hibernated
    RUNNING          -           pause        suspend     power off   freeze²    hibernate²
    PAUSED           resume³     -            suspend     power off   -          hibernate²
    SUSPENDED        resume³     resume¹      -           power off   thaw¹      -
    switched off     start       start¹       start¹      -           start¹     start¹
    EXITED itself    restartPolicy decides, unless off is desired
    PAUSED itself    stays paused until an operator resumes it (guest asleep, I/O error)

    ¹ and then the next call from the new state
    ² once the machine is started and ready, by the rules of all pods on standby (`standby.plan`); else as running
    ³ thaw, if a call of standby froze it, by its condition or the last call of this process

The last command of ``kubeletx vm`` and ``kubeletx pod standby|activate`` counts, until powerSpec is edited. Without a
command it is powerSpec and, if that is Running, the annotation ``kubeletx.io/standby``. Requests in memory only decide
between running, standby and hibernated: they do not wake a machine that a command or powerSpec paused.

A machine that was switched off on request does not count as ended, neither for the pod's phase nor for the restart
policy.
"""

from __future__ import annotations

import enum
from typing import Final

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import Event
from kubeletx.kube.manifests.machine_form import power_of

from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ...model.roles import regular_units
from ..overrides import overrides_of
from ..power import RESTING, STANDING_BY, Power
from ..standby.actions import SetStandby, StandbyStep
from ..standby.facts import standby_of
from ..standby.plan import STEPS, may_rest, with_requests
from ..standby.plan import initial_power as power_of_annotation
from ..standby.status import was_on_standby
from .actions import SetPower
from .facts import MachineFacts, machine_of_facts, machine_unit


class PowerStep(enum.Enum):
    """Call that changes the power state of a machine."""

    PAUSE = "pause"
    RESUME = "resume"
    SUSPEND = "suspend"
    POWER_OFF = "power_off"
    START = "start"


OF_SPEC: Final = {
    "Running": Power.RUNNING,
    "Paused": Power.PAUSED,
    "Suspended": Power.SUSPENDED,
    "Shutdown": Power.OFF,
}

ASKED_FOR: Final = ("", "Paused")
"""Values of `UnitStatus.reason` for a machine that was paused by a call, not by its guest or an error."""

_HELD: Final = (Power.PAUSED, Power.SUSPENDED, Power.OFF)
"""States that only ``kubeletx vm`` and powerSpec request."""

MACHINE_WORDS: Final = {
    UnitState.CREATED: "not started yet",
    UnitState.RUNNING: "running",
    UnitState.PAUSED: "paused",
    UnitState.SUSPENDED: "suspended",
    UnitState.EXITED: "off",
    UnitState.UNKNOWN: "in an unknown state",
}
"""Words for the states of a machine in the messages of ``vm`` commands."""

_STEPS: Final = {
    (UnitState.RUNNING, Power.PAUSED): PowerStep.PAUSE,
    (UnitState.RUNNING, Power.SUSPENDED): PowerStep.SUSPEND,
    (UnitState.RUNNING, Power.OFF): PowerStep.POWER_OFF,
    (UnitState.PAUSED, Power.RUNNING): PowerStep.RESUME,
    (UnitState.PAUSED, Power.SUSPENDED): PowerStep.SUSPEND,
    (UnitState.PAUSED, Power.OFF): PowerStep.POWER_OFF,
    (UnitState.SUSPENDED, Power.RUNNING): PowerStep.RESUME,
    (UnitState.SUSPENDED, Power.PAUSED): PowerStep.RESUME,
    (UnitState.SUSPENDED, Power.OFF): PowerStep.POWER_OFF,
}


def spec_power(desired: DesiredPod) -> Power:
    """Return the power state that the pod's spec requests."""
    return OF_SPEC.get(power_of(desired.pod), Power.RUNNING)


def initial_power(desired: DesiredPod) -> Power:
    """Return the power state that the spec requests or, if the machine is to run, the annotation on standby."""
    wanted = spec_power(desired)
    return power_of_annotation(desired.pod) if wanted is Power.RUNNING else wanted


def is_overridden(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if an operator's power command is in effect in place of the spec's power state."""
    overrides = overrides_of(facts)
    return overrides is not None and bool(overrides.power) and overrides.power_spec == power_of(desired.pod)


def wanted_power(desired: DesiredPod, facts: PodFacts) -> Power:
    """Return the desired power state of the machine.

    The last command's state or, if there is none or the spec's power state changed after it, the initial state.
    Requests in memory count too, except while the machine is to be paused, suspended or off.
    """
    overrides = overrides_of(facts)
    if overrides is not None and is_overridden(desired, facts):
        lasting = overrides.power
    elif (initial := initial_power(desired)) is not Power.RUNNING:
        lasting = initial.value
    else:
        lasting = ""
    if lasting and Power(lasting) in _HELD:
        return Power(lasting)
    return with_requests(lasting, facts)


def created_power(desired: DesiredPod, facts: PodFacts) -> Power:
    """Return the power state in which the machine is created; a machine on standby is created running."""
    wanted = wanted_power(desired, facts)
    return Power.RUNNING if wanted in STANDING_BY else wanted


def is_wanted_off(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if the pod is a machine whose desired power state is off, so that it must not be started."""
    return facts.of(MachineFacts) is not None and wanted_power(desired, facts) is Power.OFF


def was_switched_off(facts: PodFacts, unit: UnitSummary | None) -> bool:
    """Return True if the machine does not run because it was switched off on request."""
    overrides = overrides_of(facts)
    if unit is None or overrides is None or unit.state is not UnitState.EXITED:
        return False
    return overrides.off_unit == unit.id


def plan_power(unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Plan the next call that leads to the desired power state. If the runtime cannot do it, add a warning event."""
    _tell_hold(unit, desired, facts, draft)
    wanted = wanted_power(desired, facts)
    if wanted in STANDING_BY and not may_rest(desired, facts, draft):
        wanted = Power.RUNNING
    plan_step(unit, wanted, facts, draft)


def plan_step(unit: UnitSummary, wanted: Power, facts: PodFacts, draft: Draft) -> None:
    """Plan the next call that leads to state `wanted`. If the runtime cannot do it, add a warning event."""
    step = next_step(unit, facts, wanted)
    if step is None:
        return
    known = machine_of_facts(facts)
    able = known.can_standby if isinstance(step, StandbyStep) else known.can_power
    if step is not PowerStep.START and not able:
        draft.refuse(
            Event.POWER_UNSUPPORTED,
            f"runtime {facts.runtime} cannot change the power of its units; {unit.name} stays as it is "
            f"instead of {wanted.value}",
        )
        return
    if isinstance(step, StandbyStep):
        standby = SetStandby(name=unit.name, unit_id=unit.id, step=step.value, is_machine=True)
        if draft.is_due(standby.failure(facts)):
            draft.do(standby)
        return
    if draft.is_due(machine_unit(facts, unit.name).power_failure):
        grace = facts.grace_seconds if step is PowerStep.POWER_OFF else 0
        draft.do(SetPower(name=unit.name, unit_id=unit.id, step=step.value, grace_seconds=grace))


def _tell_hold(unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Add a warning event if the machine should run, but has paused itself and needs an operator to resume it."""
    text = hold_message(facts, unit)
    if text and wanted_power(desired, facts) is Power.RUNNING:
        draft.refuse(Event.MACHINE_HELD, f"Machine {unit.name} is paused: {text}")


def hold_message(facts: PodFacts, unit: UnitSummary) -> str:
    """Return the runtime's message about a machine that paused itself, with the remedy; empty if it did not."""
    if not own_hold(facts, unit) or facts.snapshot is None:
        return ""
    status = facts.snapshot.status_of(unit.id)
    return status.message if status is not None else ""


def own_hold(facts: PodFacts, unit: UnitSummary) -> str:
    """Return the reason that the guest or its emulator paused itself, such as sleep or an I/O error; else empty.

    The agent does not resume such a machine, which could pause again endlessly. An operator must resume it.
    """
    if unit.state is not UnitState.PAUSED or facts.snapshot is None:
        return ""
    status = facts.snapshot.status_of(unit.id)
    reason = status.reason if status is not None else ""
    return "" if reason in ASKED_FOR else reason


def next_step(unit: UnitSummary, facts: PodFacts, wanted: Power) -> PowerStep | StandbyStep | None:
    """Return the next call by the table in the module docstring; None if there is nothing to do.

    `wanted`: the desired power state; RUNNING instead of STANDBY and HIBERNATED while the machine may not rest.
    """
    if wanted not in _HELD and own_hold(facts, unit):
        return None
    if was_switched_off(facts, unit):
        return None if wanted is Power.OFF else PowerStep.START
    if wanted in STANDING_BY or (wanted is Power.RUNNING and _was_frozen(facts)):
        return STEPS.get((unit.state, wanted))
    return _STEPS.get((unit.state, wanted))


def _was_frozen(facts: PodFacts) -> bool:
    """Return True if a call of standby, not one of ``kubeletx vm``, is known to have paused or suspended the machine."""
    frozen = (StandbyStep.FREEZE.value, StandbyStep.HIBERNATE.value)
    return was_on_standby(facts) or standby_of(facts).last_step in frozen


def resting_unit(desired: DesiredPod, facts: PodFacts) -> UnitSummary | None:
    """Return the machine's unit if it is paused or suspended, but not by its guest, ``kubeletx vm`` or powerSpec."""
    unit = next((facts.newest(machine.name) for machine in regular_units(desired.pod)), None)
    if unit is None or unit.state not in RESTING or own_hold(facts, unit):
        return None
    return None if wanted_power(desired, facts) in _HELD else unit
