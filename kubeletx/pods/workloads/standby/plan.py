"""Standby of a pod: wanted power, and the units to freeze, hibernate or thaw next. Pure.

    down: all app containers ─► last sidecar ─► ... ─► first sidecar
    up:   first sidecar ─► ... ─► last sidecar ─► all app containers

A pod rests as a whole or not at all. It may rest only while nothing of it is due to start and each living unit has started:
postStart hook done, startup and readiness passed. While one has not, or a freeze failed, the wanted power counts as running, so that
units which rest already are thawed. Each step comes from what the last look shows: a wake during a freeze is planned as
soon as the freeze has ended, so that the pod ends awake.

    state \\ wanted   running   standby   hibernated
    RUNNING          -         freeze    hibernate
    PAUSED           thaw      -         hibernate
    SUSPENDED        thaw      thaw¹     -

    ¹ and then freeze
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeletx.api import UnitState, UnitSummary
from kubeletx.kube.types.core import Container

from ...model.actions import ReadOverrides
from ...model.draft import Draft
from ...model.exits import exit_code_of
from ...model.facts import DesiredPod, PodFacts
from ...model.roles import init_units, is_sidecar, regular_units
from ..overrides import overrides_of
from ..power import Power, strongest
from .actions import SetStandby, StandbyStep
from .facts import standby_of

KNOWN: Final = (Power.RUNNING, Power.STANDBY, Power.HIBERNATED)
"""Power states of containers; others are of machines and are ignored."""
RESTING: Final = (UnitState.PAUSED, UnitState.SUSPENDED)
_WORDS: Final = {power.value: power for power in KNOWN}
_TARGETS: Final = {
    Power.RUNNING: UnitState.RUNNING,
    Power.STANDBY: UnitState.PAUSED,
    Power.HIBERNATED: UnitState.SUSPENDED,
}
_STEPS: Final = {
    (UnitState.RUNNING, Power.STANDBY): StandbyStep.FREEZE,
    (UnitState.RUNNING, Power.HIBERNATED): StandbyStep.HIBERNATE,
    (UnitState.PAUSED, Power.RUNNING): StandbyStep.THAW,
    (UnitState.PAUSED, Power.HIBERNATED): StandbyStep.HIBERNATE,
    (UnitState.SUSPENDED, Power.RUNNING): StandbyStep.THAW,
    (UnitState.SUSPENDED, Power.STANDBY): StandbyStep.THAW,
}


def wanted_power(facts: PodFacts) -> Power:
    """The strongest of the stored request and the requests in memory; running if there is none."""
    overrides = overrides_of(facts)
    words = [*facts.asked.values(), *([overrides.power] if overrides is not None else [])]
    return strongest(_WORDS[word] for word in words if word in _WORDS)


def plan_overrides(facts: PodFacts, draft: Draft) -> None:
    """Plan to read the overrides file of a pod that an earlier agent process may have frozen."""
    if facts.overrides is None and facts.recovered:
        draft.do(ReadOverrides())


def plan_standby(desired: DesiredPod, facts: PodFacts, draft: Draft, *, is_settled: bool) -> None:
    """Plan the next freeze, hibernate and thaw calls.

    `is_settled`: no unit of the pod is due to start, now or later.
    """
    if facts.overrides is None and facts.recovered:
        return
    wanted = wanted_power(facts)
    if wanted is not Power.RUNNING and not (is_settled and _may_rest(desired, facts, draft)):
        wanted = Power.RUNNING
    for unit in next_units(desired, facts, wanted):
        step = _STEPS[(unit.state, wanted)]
        action = SetStandby(name=unit.name, unit_id=unit.id, step=step.value)
        if draft.is_due(action.failure(facts)):
            draft.do(action)


def next_units(desired: DesiredPod, facts: PodFacts, wanted: Power) -> tuple[UnitSummary, ...]:
    """The units to freeze, hibernate or thaw now: all app containers together, sidecars one by one."""
    target = _TARGETS[wanted]
    apps = tuple(unit for _, unit in _living(desired, facts, sidecars=False) if unit.state is not target)
    sidecars = [unit for _, unit in _living(desired, facts, sidecars=True) if unit.state is not target]
    if wanted is Power.RUNNING:
        return tuple(sidecars[:1]) or apps[::-1]
    return apps or tuple(sidecars[-1:])


def _may_rest(desired: DesiredPod, facts: PodFacts, draft: Draft) -> bool:
    """Return True if the pod may rest: each unit rests, is ready or ended, and no failed freeze backs off."""
    known = standby_of(facts)
    for container in (*_sidecars(desired), *regular_units(desired.pod)):
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


def _living(
    desired: DesiredPod, facts: PodFacts, *, sidecars: bool
) -> Iterator[tuple[Container, UnitSummary]]:
    """Yield sidecars or app containers in spec order, each with its unit if that runs or rests."""
    for container in _sidecars(desired) if sidecars else regular_units(desired.pod):
        unit = facts.newest(container.name)
        if unit is not None and (unit.state is UnitState.RUNNING or unit.state in RESTING):
            yield container, unit


def _sidecars(desired: DesiredPod) -> tuple[Container, ...]:
    return tuple(one for one in init_units(desired.pod) if is_sidecar(one))
