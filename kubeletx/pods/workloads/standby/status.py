"""State of a pod on standby as its status and the metrics show it. Pure."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubeletx.api import UnitState, names
from kubeletx.kube.types.core import PodCondition

from ...model.facts import DesiredPod, PodFacts
from ..power import RESTING, STANDING_BY, Power
from .actions import StandbyStep
from .facts import StandbyFacts, find_standby, memory_of, standby_of
from .plan import living_units

STANDBY: Final = "Standby"
HIBERNATED: Final = "Hibernated"
FREEZE_FAILED: Final = "FreezeFailed"
THAW_FAILED: Final = "ThawFailed"
NOT_FROZEN_YET: Final = "NotFrozenYet"
NOT_FROZEN: Final = "NotFrozen"

_RESTS: Final = {
    Power.STANDBY: (STANDBY, StandbyStep.FREEZE),
    Power.HIBERNATED: (HIBERNATED, StandbyStep.HIBERNATE),
}
_DONE: Final = {
    StandbyStep.FREEZE: "frozen",
    StandbyStep.HIBERNATE: "hibernated",
    StandbyStep.THAW: "thawed",
}
_MEBIBYTE: Final = 1 << 20


def rest_of(desired: DesiredPod, facts: PodFacts) -> Power:
    """Return STANDBY if all living containers are frozen, HIBERNATED if all are hibernated, else RUNNING."""
    states = {unit.state for unit in living_units(desired.pod, facts)}
    if not states or not states.issubset(RESTING):
        return Power.RUNNING
    return Power.HIBERNATED if states == {UnitState.SUSPENDED} else Power.STANDBY


def was_on_standby(facts: PodFacts) -> bool:
    """Return True if the last published status has condition `names.STANDBY_CONDITION` with status True."""
    condition = find_standby(facts.previous_status)
    return condition is not None and condition.status == "True"


def standby_condition(
    facts: PodFacts, rests: Power, wanted: Power, obstacle: str = ""
) -> tuple[PodCondition, ...]:
    """Build condition `names.STANDBY_CONDITION`; empty if the pod never had it and should run.

    Its last transition is the time since which the pod is frozen, or runs. `rests`: result of `rest_of`. `wanted`:
    desired power state. `obstacle`: why the pod cannot be frozen; empty if it can. The message has the duration of
    the last freeze, hibernation or thaw of the whole pod.
    """
    known, noun = standby_of(facts), facts.own.noun
    stuck = _thaw_failure(facts, noun)
    if rests is not Power.RUNNING:
        reason, step = _RESTS[rests]
        parts = (stuck, _duration_text(known, step), _memory_text(known))
        return _kept(facts, _condition("True", reason, "; ".join(filter(None, parts))))
    failed = next((f"{noun} {name}: {failure.message}" for name, failure in known.rest_failures.items()), "")
    if stuck:
        text = f"{stuck}; before that, the freeze failed: {failed}" if failed else stuck
        return (_condition("False", THAW_FAILED, text),)
    if wanted in STANDING_BY:
        if failed or obstacle:
            return (_condition("False", FREEZE_FAILED, failed or obstacle),)
        text = f"{wanted.value} is requested; {noun}s are frozen once all of them are started and ready"
        return (_condition("False", NOT_FROZEN_YET, text),)
    if find_standby(facts.previous_status) is None:
        return ()
    return _kept(facts, _condition("False", NOT_FROZEN, _duration_text(known, StandbyStep.THAW)))


def _condition(status: str, reason: str, message: str) -> PodCondition:
    return PodCondition(type=names.STANDBY_CONDITION, status=status, reason=reason, message=message or None)


def _kept(facts: PodFacts, new: PodCondition) -> tuple[PodCondition, ...]:
    """Return the condition; without a message of its own it keeps the message of the same state in the last status.

    The duration of a change by an earlier agent process is only in the stored status.
    """
    before = find_standby(facts.previous_status)
    if new.message or before is None or (before.status, before.reason) != (new.status, new.reason):
        return (new,)
    return (replace(new, message=before.message),)


def _thaw_failure(facts: PodFacts, noun: str) -> str:
    """Return a message about a unit that cannot be thawed; empty if there is none."""
    for name, failure in standby_of(facts).thaw_failures.items():
        unit = facts.newest(name)
        if unit is not None and unit.state in RESTING:
            return f"{noun} {name} cannot be thawed: {failure.message}"
    return ""


def _duration_text(known: StandbyFacts, step: StandbyStep) -> str:
    last = known.last
    if last is None or last.step != step.value:
        return ""
    return f"{_DONE[step]} in {last.seconds:.3f}s"


def _memory_text(known: StandbyFacts) -> str:
    """Return the memory of all hibernated containers before and after; empty if it was not measured."""
    memory = memory_of(known)
    if memory is None:
        return ""
    return f"memory: {memory[0] / _MEBIBYTE:.1f} MiB before, {memory[1] / _MEBIBYTE:.1f} MiB after"
