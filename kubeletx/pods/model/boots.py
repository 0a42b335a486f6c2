"""Boots of one unit. A machine keeps its unit while the guest reboots and over ``vm stop`` and ``vm start``.

Probes belong to a boot: after a reboot a guest is not started and not ready until its probes pass again. A container
boots once, with its unit. Pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import UnitStatus, UnitSummary
from kubeletx.kube.types.core import ContainerStatus

from .facts import PodFacts
from .frame import at_ns, is_of_unit


def boot_of(facts: PodFacts, unit: UnitSummary) -> str:
    """Identifier of the unit's present boot; empty for a container, and until a look has shown the unit's status."""
    status = _status_of(facts, unit)
    return f"{status.restarts}/{status.started_at_ns}" if status is not None else ""


def is_of_boot(status: ContainerStatus | None, facts: PodFacts, unit: UnitSummary) -> bool:
    """Return True if a reported container status is of this unit's present boot."""
    if status is None or not is_of_unit(status, unit.id):
        return False
    seen = _status_of(facts, unit)
    if seen is None:
        return True
    if status.restart_count < unit.attempt + seen.restarts:
        return False
    running, started_at = status.state.running, at_ns(seen.started_at_ns)
    if running is None or running.started_at is None or started_at is None:
        return True
    return started_at <= running.started_at


def without_old_boots(facts: PodFacts) -> PodFacts:
    """Return the facts without probe outcomes of units that have ended or booted again since."""
    if not facts.own.reboots or facts.snapshot is None:
        return facts
    known = dict(facts.units)
    for unit in facts.snapshot.units:
        probes = facts.unit(unit.name).probes
        if probes is None or probes.unit_id != unit.id:
            continue
        boot = boot_of(facts, unit)
        if not unit.state.is_alive or (boot and probes.boot and boot != probes.boot):
            known[unit.name] = replace(known[unit.name], probes=None)
    return replace(facts, units=known) if known != facts.units else facts


def _status_of(facts: PodFacts, unit: UnitSummary) -> UnitStatus | None:
    if not facts.own.reboots or facts.snapshot is None:
        return None
    return facts.snapshot.status_of(unit.id)
