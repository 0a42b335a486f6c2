"""Exit codes of ended units: from the last look or, if the runtime no longer has the unit, from the stored status."""

from __future__ import annotations

from kubeletx.api import UnitSummary

from .facts import PodFacts


def exit_code_of(facts: PodFacts, unit: UnitSummary) -> int | None:
    """The exit code of an ended unit, from the last look or from the stored status; None: not known yet."""
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None else None
    if status is not None and status.exit_code is not None:
        return status.exit_code
    return stored_exit_code(facts, unit.name, str(unit.id))


def restarts_of(facts: PodFacts, unit: UnitSummary) -> int:
    """Restart count of the container at this unit's last run: earlier units plus reboots of this one."""
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None else None
    if status is not None:
        return unit.attempt + status.restarts
    for told in facts.previous_status.container_statuses if facts.previous_status is not None else ():
        if told.name == unit.name and (told.container_id or "").endswith(unit.id):
            return max(unit.attempt, told.restart_count)
    return unit.attempt


def stored_exit_code(facts: PodFacts, name: str, unit_id: str | None) -> int | None:
    """Exit code of the container in the stored status; None if it has none. `unit_id`: of this unit only."""
    previous = facts.previous_status
    if previous is None:
        return None
    for status in (*previous.init_container_statuses, *previous.container_statuses):
        ended = status.state.terminated if status.name == name and status.state is not None else None
        if ended is not None and (unit_id is None or (ended.container_id or "").endswith(unit_id)):
            return ended.exit_code
    return None
