"""Progress of a pod: units that will not run again, and units to start now or later.

init 0 ─► init 1 ─► ... ─► regular units, all in one pass (L1, L5 in docs/kubelet-parity.md)
  │ sidecars: the next one waits until they are started (startup probe passed, postStart done; L6)
  └ a finished init set is run again only in a new sandbox
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubeletx.api import SandboxId, SandboxState, UnitState, UnitSummary
from kubeletx.api.names import START_CUT_OFF
from kubeletx.kube.types.core import Container, ContainerStatus, PodStatus
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from ..model.backoff import restart_at
from ..model.exits import exit_code_of, restarts_of, stored_exit_code
from ..model.facts import DesiredPod, Now, PodFacts
from ..model.restart_policy import LOST_EXIT_CODE, should_restart
from ..model.roles import ephemeral_units, init_units, is_sidecar, regular_units
from ..workloads.table import workload_of
from .restart_all import due_generation, generation_of, is_outdated, outdated_units
from .sandbox import current_sandbox


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Unit to start, with its attempt number.

    `at`: monotonic time before which it must not start; None: start now.
    """

    name: str
    attempt: int
    at: float | None = None


def newest(facts: PodFacts, name: str) -> UnitSummary | None:
    """The container's newest unit in the last snapshot of the runtime; None if there is none."""
    return facts.newest(name)


def is_blind(facts: PodFacts) -> bool:
    """Return True if a list showed a change whose details need a look: a start, an end, an address.

    Units that the stored status already shows need no look, so that a restart of the agent is cheap. A unit
    that may boot again needs one: its guest may have rebooted, or have been given another size, which no list
    shows.
    """
    snapshot, previous = facts.snapshot, facts.previous_status
    if snapshot is None:
        return True
    has_address = snapshot.sandbox_status is not None or (previous is not None and bool(previous.pod_ips))
    if snapshot.sandboxes and snapshot.sandboxes[0].state is SandboxState.READY and not has_address:
        return True
    newest_ones = {unit.name: unit for unit in reversed(snapshot.units)}
    return any(
        snapshot.status_of(unit.id) is None and (facts.own.reboots or not _is_told(previous, unit))
        for unit in newest_ones.values()
    )


def _is_told(previous: PodStatus | None, unit: UnitSummary) -> bool:
    """Return True if the stored status shows this unit in its present state."""
    if previous is None:
        return False
    for one in (*previous.init_container_statuses, *previous.container_statuses):
        ended = one.state.terminated
        if ended is not None and (ended.container_id or "").endswith(unit.id):
            return unit.state is UnitState.EXITED
        running = one.state.running
        if running is not None and running.started_at and (one.container_id or "").endswith(unit.id):
            return unit.state.is_alive
    return False


def was_cut_off(snapshot: PodSnapshot, unit: UnitSummary) -> bool:
    """Return True if the unit's creation was interrupted, so that nothing of it ever ran."""
    status = snapshot.status_of(unit.id)
    return unit.state is UnitState.EXITED and status is not None and status.reason == START_CUT_OFF


def _final_exit_code(facts: PodFacts, name: str) -> int | None:
    """Exit code of a container that ended, from its newest unit or the stored status; None if it has not ended."""
    unit = newest(facts, name)
    if unit is None:
        code = stored_exit_code(facts, name, None)
        return LOST_EXIT_CODE if code is None and _was_running(facts, name) else code
    return exit_code_of(facts, unit) if unit.state is UnitState.EXITED else None


def _was_running(facts: PodFacts, name: str) -> bool:
    """Return True if the stored status shows the container running.

    Called only if the runtime has no unit of it any more.
    """
    previous = facts.previous_status
    if previous is None or facts.snapshot is None:
        return False
    statuses = (*previous.init_container_statuses, *previous.container_statuses)
    return any(s.name == name and s.state.running is not None for s in statuses)


def _runs_told(facts: PodFacts, name: str) -> int:
    """Number of runs that the stored status shows, 0 without one: the restart count of the next run (L3)."""
    previous = facts.previous_status
    if previous is None:
        return 0
    for status in (*previous.init_container_statuses, *previous.container_statuses):
        if status.name == name:
            return status.restart_count + _has_run(status)
    return 0


def _has_run(status: ContainerStatus) -> bool:
    """Return True if the container of this status has run; one whose start was interrupted has not."""
    before = status.last_state.terminated
    if status.state.running is not None or status.state.terminated is not None:
        return True
    return before is not None and before.container_id == status.container_id


def _ended_for_good(desired: DesiredPod, facts: PodFacts, container: Container) -> bool:
    if not _is_init(desired, container.name) and _is_kept(desired, facts, container):
        return False
    code = _final_exit_code(facts, container.name)
    if code is None or is_outdated(desired, facts, newest(facts, container.name)):
        return False
    return not _runs_again(desired, facts, container, code)


def _is_kept(desired: DesiredPod, facts: PodFacts, container: Container) -> bool:
    return workload_of(facts).is_kept(desired, facts, newest(facts, container.name))


def _runs_again(desired: DesiredPod, facts: PodFacts, container: Container, code: int) -> bool:
    return should_restart(
        container,
        desired.pod.spec.restart_policy,
        code,
        killed=facts.unit(container.name).killed,
        is_init=_is_init(desired, container.name) and not is_sidecar(container),
    )


def has_ended(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if the pod has ended: its stored phase, or the one by its units, is Succeeded or Failed."""
    previous = facts.previous_status
    if previous is not None and previous.phase in ("Succeeded", "Failed"):
        return True
    if facts.snapshot is None:
        return False
    for container in init_units(desired.pod):
        if is_sidecar(container) or not _ended_for_good(desired, facts, container):
            continue
        if _final_exit_code(facts, container.name) != 0:
            return True
    regular = regular_units(desired.pod)
    return bool(regular) and all(_ended_for_good(desired, facts, c) for c in regular)


def wants_any_unit(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if a new sandbox would have a unit to run."""
    if workload_of(facts).is_wanted_off(desired, facts):
        return False
    return not all(_ended_for_good(desired, facts, c) for c in regular_units(desired.pod))


def is_started(facts: PodFacts, container: Container, unit: UnitSummary) -> bool:
    """Return True if the unit lives, its postStart hook is done and its startup probe passed.

    The next init container may start then.
    """
    return facts.is_started(container, unit)


def due_units(desired: DesiredPod, facts: PodFacts, now: Now, *, fresh: bool) -> Iterator[Due]:
    """Yield units to start, now or later, in the current sandbox or, with `fresh`, in one to be created."""
    sandbox = None if fresh else current_sandbox(facts)
    sandbox_id = sandbox.id if sandbox is not None else None
    initialized = sandbox_id is not None and _any_regular_in(desired, facts, sandbox_id)
    yield from _due_ephemeral(desired, facts, sandbox_id)
    if not fresh and any(unit.state.is_alive for _, unit in outdated_units(desired, facts)):
        return  # all end before any starts again
    for container in init_units(desired.pod):
        due, passed = _init_step(desired, facts, now, container, sandbox_id, initialized)
        if due is not None:
            yield due
        if not passed:
            return
    for container in regular_units(desired.pod):
        due = _due(desired, facts, now, container, sandbox_id)
        if due is not None:
            yield due


def _any_regular_in(desired: DesiredPod, facts: PodFacts, sandbox_id: SandboxId) -> bool:
    names = {c.name for c in regular_units(desired.pod)}
    assert facts.snapshot is not None
    due = due_generation(desired, facts)
    return any(
        unit.sandbox_id == sandbox_id and unit.name in names and generation_of(unit) >= due
        for unit in facts.snapshot.units
    )


def _init_step(
    desired: DesiredPod,
    facts: PodFacts,
    now: Now,
    container: Container,
    sandbox_id: SandboxId | None,
    initialized: bool,
) -> tuple[Due | None, bool]:
    """Return an init container's due start or None, and whether the containers after it may start."""
    unit = newest(facts, container.name)
    here = unit is not None and unit.sandbox_id == sandbox_id and not is_outdated(desired, facts, unit)
    if is_sidecar(container):
        due = _due(desired, facts, now, container, sandbox_id)
        started = here and unit is not None and is_started(facts, container, unit)
        return due, initialized or started
    if initialized:
        return None, True
    if here and unit is not None:
        if unit.state.is_alive:
            return None, False
        is_done = unit.state is UnitState.EXITED and exit_code_of(facts, unit) == 0
        if is_done and not facts.unit(container.name).killed:
            return None, True
    return _due(desired, facts, now, container, sandbox_id), False


def _due_ephemeral(desired: DesiredPod, facts: PodFacts, sandbox_id: SandboxId | None) -> Iterator[Due]:
    if sandbox_id is None or facts.own.no_ephemeral:
        return
    for container in ephemeral_units(desired.pod):
        unit = newest(facts, container.name)
        if unit is None or unit.state is UnitState.CREATED:
            yield Due(name=container.name, attempt=0)


def _due(
    desired: DesiredPod,
    facts: PodFacts,
    now: Now,
    container: Container,
    sandbox_id: SandboxId | None,
) -> Due | None:
    unit = newest(facts, container.name)
    known = facts.unit(container.name)
    workload = workload_of(facts)
    if not workload.may_start(desired, facts):
        return None
    if workload.was_switched_off(facts, unit) and unit is not None:
        here = unit.sandbox_id == sandbox_id
        return None if here else Due(name=container.name, attempt=restarts_of(facts, unit) + 1)
    if unit is None:
        if not _is_init(desired, container.name) and _ended_for_good(desired, facts, container):
            return None
        attempt = max(known.restarts_before, _runs_told(facts, container.name))
        return Due(name=container.name, attempt=attempt)
    if unit.state is UnitState.CREATED:
        here = unit.sandbox_id == sandbox_id
        return Due(name=container.name, attempt=unit.attempt if here else restarts_of(facts, unit) + 1)
    if unit.state is not UnitState.EXITED:
        # alive here: nothing to do; alive elsewhere or unknown: it is stopped first
        return None
    code = exit_code_of(facts, unit)
    if code is None:
        return None
    in_new_sandbox = unit.sandbox_id != sandbox_id
    starts_anew = (in_new_sandbox and _is_init(desired, container.name)) or (
        not in_new_sandbox and is_outdated(desired, facts, unit)
    )
    if not starts_anew and not _runs_again(desired, facts, container, code):
        return None
    exited_at = known.exited_at if known.exited_at is not None else now.mono
    return Due(
        name=container.name,
        attempt=restarts_of(facts, unit) + 1,
        at=restart_at(known.backoff, exited_at, now.mono, cap=facts.crash_cap_seconds),
    )


def _is_init(desired: DesiredPod, name: str) -> bool:
    return any(c.name == name for c in init_units(desired.pod))
