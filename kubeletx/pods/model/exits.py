"""Exit codes and restart counts of containers.

They come from the runtime's last report or, if that lacks them, from the pod status that the agent last published.
"""

from __future__ import annotations

from kubeletx.api import UnitSummary

from .facts import PodFacts


def exit_code_of(facts: PodFacts, unit: UnitSummary) -> int | None:
    """Return the exit code of an ended unit (container or machine); None if unknown.

    It comes from the runtime or, if that no longer has it, from the last published pod status.
    """
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None else None
    if status is not None and status.exit_code is not None:
        return status.exit_code
    return stored_exit_code(facts, unit.name, str(unit.id))


def restarts_of(facts: PodFacts, unit: UnitSummary) -> int:
    """Return the restart count of the container to which `unit` belongs, as of this unit.

    It is the number of its earlier units plus, for a machine, the reboots of the guest within this unit.
    """
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None else None
    if status is not None:
        return unit.attempt + status.restarts
    for reported in facts.previous_status.container_statuses if facts.previous_status is not None else ():
        if reported.name == unit.name and (reported.container_id or "").endswith(unit.id):
            return max(unit.attempt, reported.restart_count)
    return unit.attempt


def stored_exit_code(facts: PodFacts, name: str, unit_id: str | None) -> int | None:
    """Return the exit code of container `name` in the last published status; None if it has none.

    `unit_id`: consider only the end of this unit; None: of any unit of the container.
    """
    previous = facts.previous_status
    if previous is None:
        return None
    for status in (*previous.init_container_statuses, *previous.container_statuses):
        ended = status.state.terminated if status.name == name and status.state is not None else None
        if ended is not None and (unit_id is None or (ended.container_id or "").endswith(unit_id)):
            return ended.exit_code
    return None
