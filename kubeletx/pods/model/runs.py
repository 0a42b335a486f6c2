"""Exit codes, restart counts and boots of units (containers and virtual machines). Pure.

Exit codes and restart counts come from the last report of the runtime or, if that lacks them, from the pod status that
the agent last published. A machine is still the same unit after a reboot of its guest, and after ``vm stop`` and ``vm
start``. Probe results belong to one boot: after a reboot the guest is neither started nor ready until its probes pass
again. A container boots only once.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import UnitStatus, UnitSummary
from kubeletx.kube.types.core import ContainerStatus

from .facts import PodFacts
from .frame import at_ns, is_of_unit, previous_of
from .restart_policy import RESTART_REQUESTED


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
    reported = previous_of(facts.previous_status, unit.name)
    if reported is not None and (reported.container_id or "").endswith(unit.id):
        return max(unit.attempt, reported.restart_count)
    return unit.attempt


def killed_for(facts: PodFacts, name: str) -> str:
    """Return why the newest unit of the container is stopped for a restart; empty if it is not.

    A restart that a user requested is known from the overrides file, also if an earlier agent process stopped the unit.
    """
    unit = facts.newest(name)
    is_asked = (
        unit is not None and facts.overrides is not None and facts.overrides.restarts.get(name) == unit.id
    )
    return RESTART_REQUESTED if is_asked else facts.unit(name).killed


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


def boot_of(facts: PodFacts, unit: UnitSummary) -> str:
    """Return an identifier of the present boot of a machine; `unit` is the machine.

    Empty for a container, and while the runtime has not reported the unit's status yet.
    """
    status = _status_of(facts, unit)
    return f"{status.restarts}/{status.started_at_ns}" if status is not None else ""


def is_of_boot(status: ContainerStatus | None, facts: PodFacts, unit: UnitSummary) -> bool:
    """Return True if `status`, an earlier container status, describes the present boot of this container or machine."""
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
    """Return the facts without the probe results of machines that ended or rebooted after the probe."""
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
