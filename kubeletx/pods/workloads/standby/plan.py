"""Plans which containers of a pod to freeze, hibernate or thaw next. Pure.

    freeze: all regular and ephemeral containers ─► last sidecar ─► ... ─► first sidecar
    thaw:   first sidecar ─► ... ─► last sidecar ─► all regular and ephemeral containers

Either all containers of a pod are frozen or none. The pod is frozen only while no container is due to start or being
stopped and each running container has started: postStart hook done, startup and readiness probes passed. Otherwise, and
after a failed freeze, the desired state counts as running, so that containers that are already frozen are thawed. Each
call is planned from the last known state. If the pod should run again while a freeze is in flight, the thaw is planned
as soon as the freeze has ended. A hibernation in flight is cancelled as soon as the pod should not be hibernated: the
runtime undoes it, the pod's state is read, and containers that are still frozen are thawed. A pod that ends is not
frozen; each stop thaws its container first.

    state \\ desired  running   standby   hibernated
    RUNNING          -         freeze    hibernate
    PAUSED           thaw      -         hibernate
    SUSPENDED        thaw      thaw¹     -

    ¹ and then freeze
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary, names
from kubeletx.kube.types.core import Container, Pod

from ...model.actions import StopUnit
from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ...model.roles import ephemeral_units, regular_units, sidecars
from ...model.runs import exit_code_of
from ..overrides import overrides_of
from ..power import RESTING, Power, strongest
from .actions import SetStandby, StandbyStep
from .facts import StandbyFacts, standby_of

F = TypeVar("F", bound=StandbyFacts)

TARGETS: Final = {
    Power.RUNNING: UnitState.RUNNING,
    Power.STANDBY: UnitState.PAUSED,
    Power.HIBERNATED: UnitState.SUSPENDED,
}
"""State of a unit by the desired power state. The other power states exist only for machines and are ignored here."""
_WORDS: Final = {power.value: power for power in TARGETS}
STATES: Final = {
    StandbyStep.FREEZE.value: UnitState.PAUSED,
    StandbyStep.HIBERNATE.value: UnitState.SUSPENDED,
    StandbyStep.THAW.value: UnitState.RUNNING,
}
STEPS: Final = {
    (UnitState.RUNNING, Power.STANDBY): StandbyStep.FREEZE,
    (UnitState.RUNNING, Power.HIBERNATED): StandbyStep.HIBERNATE,
    (UnitState.PAUSED, Power.RUNNING): StandbyStep.THAW,
    (UnitState.PAUSED, Power.HIBERNATED): StandbyStep.HIBERNATE,
    (UnitState.SUSPENDED, Power.RUNNING): StandbyStep.THAW,
    (UnitState.SUSPENDED, Power.STANDBY): StandbyStep.THAW,
}


def initial_power(pod: Pod) -> Power:
    """Return the state that annotation ``kubeletx.io/standby`` requests; RUNNING without it."""
    return _WORDS.get(pod.metadata.annotations.get(names.STANDBY, ""), Power.RUNNING)


def wanted_power(desired: DesiredPod, facts: PodFacts) -> Power:
    """Return the desired power state of the pod; RUNNING without a request.

    A command's request, which is stored in the overrides, replaces the pod's annotation. If this and requests
    in memory differ, the state nearest to running is used.
    """
    overrides = overrides_of(facts)
    lasting = overrides.power if overrides is not None else ""
    if not lasting and names.STANDBY in desired.pod.metadata.annotations:
        lasting = initial_power(desired.pod).value
    return with_requests(lasting, facts)


def with_requests(lasting: str, facts: PodFacts) -> Power:
    """Return the state nearest to running of `lasting` and the requests in memory; RUNNING if there are none.

    `lasting`: word of the state that a command or the annotation requests; empty: none.
    """
    words = [*facts.asked.values(), lasting]
    return strongest(_WORDS[word] for word in words if word in _WORDS)


def plan_standby(desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
    """Plan the next calls that freeze, hibernate or thaw containers of the pod.

    `is_settled`: no container of the pod is due to start, now or after a back-off.
    """
    if facts.overrides is None and facts.recovered:
        return
    wanted = wanted_power(desired, facts)
    if wanted is not Power.RUNNING and not (is_settled and may_rest(desired, facts, draft)):
        wanted = Power.RUNNING
    if wanted is not Power.HIBERNATED:
        _cancel_hibernations(facts, draft)
    for unit in next_units(desired, facts, wanted):
        step = STEPS[(unit.state, wanted)]
        action = SetStandby(name=unit.name, unit_id=unit.id, step=step.value)
        if draft.is_due(action.failure(facts)):
            draft.do(action)


def plan_thaw_for_stop(desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Plan to thaw the frozen sidecars of a pod that ends, while one of its regular containers is alive.

    The stop of a regular container thaws it and the sidecars, which its preStop hook may need. A freeze of a sidecar
    that was in flight when the stop began ends after that; a hibernation in flight is cancelled.
    """
    _cancel_hibernations(facts, draft)
    if not any(True for _ in _living(desired.pod, facts, of_sidecars=False)):
        return
    for unit in _living(desired.pod, facts, of_sidecars=True):
        if unit.state in RESTING:
            action = SetStandby(name=unit.name, unit_id=unit.id, step=StandbyStep.THAW.value)
            if draft.is_due(action.failure(facts)):
                draft.do(action)


def _cancel_hibernations(facts: PodFacts, draft: Draft) -> None:
    for key in facts.revocable:
        if key.startswith(f"{SetStandby.subject}/"):
            draft.cancel(key)


def next_units(desired: DesiredPod, facts: PodFacts, wanted: Power) -> tuple[UnitSummary, ...]:
    """Return the units to bring to state `wanted` now: all regular containers together, sidecars one at a time."""
    target = TARGETS[wanted]
    apps = tuple(unit for unit in _living(desired.pod, facts, of_sidecars=False) if unit.state is not target)
    later = [unit for unit in _living(desired.pod, facts, of_sidecars=True) if unit.state is not target]
    if wanted is Power.RUNNING:
        return tuple(later[:1]) or apps[::-1]
    return apps or tuple(later[-1:])


def living_units(pod: Pod, facts: PodFacts) -> tuple[UnitSummary, ...]:
    """Return the units of all containers that run or are frozen."""
    return (*_living(pod, facts, of_sidecars=True), *_living(pod, facts, of_sidecars=False))


def settled(pod: Pod, facts: PodFacts, known: F) -> F:
    """Return `known`, with the change under way as the last one if all living units have its state."""
    change = known.under_way
    if change is None:
        return known
    units = living_units(pod, facts)
    if not units or any(unit.state is not STATES[change.step] for unit in units):
        return known
    return replace(known, under_way=None, last=change)


def may_rest(desired: DesiredPod, facts: PodFacts, draft: Draft) -> bool:
    """Return True if the pod may be frozen now.

    Each container must be frozen, ready or ended, and no failed freeze may be in its back-off. No container may be in
    a stop, or have its hibernation cancelled for one: its preStop hook may need the others.
    """
    if facts.stopping or draft.has_planned(StopUnit) or draft.is_cancelling:
        return False
    known = standby_of(facts)
    for container in (*sidecars(desired.pod), *regular_units(desired.pod)):
        unit = facts.newest(container.name)
        if unit is None or not draft.is_due(known.rest_failures.get(container.name)):
            return False
        if unit.state is UnitState.EXITED:
            if exit_code_of(facts, unit) is None:
                return False
        elif unit.state not in RESTING and not _is_ready(container, unit, facts):
            return False
    return True


def _is_ready(container: Container, unit: UnitSummary, facts: PodFacts) -> bool:
    if unit.state is not UnitState.RUNNING or not facts.is_started(container, unit):
        return False
    if container.readiness_probe is None:
        return True
    probes = facts.unit(container.name).probes
    return probes is not None and probes.unit_id == unit.id and probes.readiness is True


def _living(pod: Pod, facts: PodFacts, *, of_sidecars: bool) -> Iterator[UnitSummary]:
    """Yield the units of the sidecars, or else of all other containers, that run or are frozen, in spec order."""
    for container in sidecars(pod) if of_sidecars else (*regular_units(pod), *ephemeral_units(pod)):
        unit = facts.newest(container.name)
        if unit is not None and unit.state.is_alive:
            yield unit
