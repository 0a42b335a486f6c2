"""State of a pod on standby as its status and the metrics show it. Pure."""

from __future__ import annotations

from typing import Final

from kubeletx.api import UnitState, names
from kubeletx.kube.types.core import PodCondition

from ...model.facts import DesiredPod, PodFacts
from ...model.roles import init_units, is_sidecar, regular_units
from ..power import Power, strongest
from .facts import StandbyFacts, standby_of
from .plan import RESTING, wanted_power

STANDBY: Final = "Standby"
HIBERNATED: Final = "Hibernated"
FREEZE_FAILED: Final = "FreezeFailed"
NOT_FROZEN_YET: Final = "NotFrozenYet"
NOT_FROZEN: Final = "NotFrozen"

_SPARED: Final = {Power.STANDBY: ("cpu",), Power.HIBERNATED: ("cpu", "memory")}
_MEBIBYTE: Final = 1 << 20


def rest_of(desired: DesiredPod, facts: PodFacts) -> Power:
    """Return STANDBY if all living containers are frozen, HIBERNATED if all are hibernated, else RUNNING."""
    containers = (*(one for one in init_units(desired.pod) if is_sidecar(one)), *regular_units(desired.pod))
    newest = (facts.newest(container.name) for container in containers)
    states = {unit.state for unit in newest if unit is not None and unit.state.is_alive}
    if not states or not states.issubset(RESTING):
        return Power.RUNNING
    return Power.HIBERNATED if states == {UnitState.SUSPENDED} else Power.STANDBY


def spared_resources(desired: DesiredPod, facts: PodFacts) -> tuple[str, ...]:
    """Return the resources that a frozen pod does not use: CPU, and memory if it is hibernated; empty if it runs.

    Empty too from the moment when the pod should run again, before the first container is thawed.
    """
    if facts.of(StandbyFacts) is None or desired.is_ending:
        return ()
    return _SPARED.get(strongest((rest_of(desired, facts), wanted_power(desired, facts))), ())


def standby_condition(desired: DesiredPod, facts: PodFacts) -> PodCondition | None:
    """Build condition `names.STANDBY_CONDITION`; None if the pod never had it and shall run.

    Its last transition is the time since which the pod is frozen, or runs.
    """
    rests = rest_of(desired, facts)
    if rests is not Power.RUNNING:
        reason = HIBERNATED if rests is Power.HIBERNATED else STANDBY
        return _condition("True", reason, _memory_text(facts))
    wanted = wanted_power(desired, facts)
    if wanted is not Power.RUNNING:
        failed = next(iter(standby_of(facts).rest_failures.items()), None)
        if failed is not None:
            name, failure = failed
            return _condition("False", FREEZE_FAILED, f"container {name}: {failure.message}")
        text = f"{wanted.value} is requested; containers are frozen once all of them are started and ready"
        return _condition("False", NOT_FROZEN_YET, text)
    previous = facts.previous_status
    if previous is None or all(one.type != names.STANDBY_CONDITION for one in previous.conditions):
        return None
    return _condition("False", NOT_FROZEN, "")


def _condition(status: str, reason: str, message: str) -> PodCondition:
    return PodCondition(type=names.STANDBY_CONDITION, status=status, reason=reason, message=message or None)


def _memory_text(facts: PodFacts) -> str:
    """Return the memory of all hibernated containers before and after; empty if it was not measured."""
    known = standby_of(facts).memory.values()
    if not known:
        return ""
    before, after = (sum(column) / _MEBIBYTE for column in zip(*known, strict=True))
    return f"memory: {before:.1f} MiB before, {after:.1f} MiB after"
