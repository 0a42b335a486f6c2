"""Progress of a pod: which of its containers are to be started next, and which will not run again.

init 0 ─► init 1 ─► ... ─► all regular containers at once (docs/kubelet-parity.md, rows L1, L5 and L6)
  │ a sidecar among them must have started (startup probe passed, postStart done) before the next one starts
  └ init containers run again only in a new sandbox
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubeletx.api import SandboxId, SandboxState, UnitId, UnitState, UnitSummary
from kubeletx.api.names import BACKOFF_LIMIT, START_CUT_OFF
from kubeletx.kube.types.core import Container, ContainerStatus, PodStatus
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from ..model.backoff import restart_at
from ..model.facts import DesiredPod, Now, PodFacts
from ..model.frame import previous_of
from ..model.restart_policy import ALWAYS, LOST_EXIT_CODE, NEVER, restart_policy_of, should_restart
from ..model.roles import ephemeral_units, init_units, is_sidecar, regular_units, sidecars
from ..model.runs import exit_code_of, killed_for, restarts_of, stored_exit_code
from ..workloads.table import workload_of
from .restart_all import due_generation, generation_of, is_outdated, outdated_units
from .sandbox import current_sandbox


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Container that must be started, with the attempt number (restart count) of its new unit.

    `at`: monotonic time before which it must not start; None: start now.
    """

    name: str
    attempt: int
    at: float | None = None


def is_blind(facts: PodFacts) -> bool:
    """Return True if details of the pod must be queried from the runtime.

    This is so if the runtime's lists show a change, such as a start or an end of a unit, or a new sandbox, for
    which the exit code, start time or address is unknown. A unit that the last published status already shows is
    not queried, so that a restart of the agent is cheap. A machine is always queried, since no list shows a
    reboot or a new size.
    """
    snapshot, previous = facts.snapshot, facts.previous_status
    if snapshot is None:
        return True
    has_address = snapshot.sandbox_status is not None or (previous is not None and bool(previous.pod_ips))
    if snapshot.sandboxes and snapshot.sandboxes[0].state is SandboxState.READY and not has_address:
        return True
    newest_ones = {unit.name: unit for unit in reversed(snapshot.units)}
    return any(
        snapshot.status_of(unit.id) is None and (facts.own.reboots or not _is_reported(previous, unit))
        for unit in newest_ones.values()
    )


def _is_reported(previous: PodStatus | None, unit: UnitSummary) -> bool:
    """Return True if the last published status shows this unit in its present state."""
    if previous is None:
        return False
    for container_status in (*previous.init_container_statuses, *previous.container_statuses):
        ended = container_status.state.terminated
        if ended is not None and (ended.container_id or "").endswith(unit.id):
            return unit.state is UnitState.EXITED
        running = container_status.state.running
        if (
            running is not None
            and running.started_at
            and (container_status.container_id or "").endswith(unit.id)
        ):
            return unit.state.is_alive
    return False


def was_cut_off(snapshot: PodSnapshot, unit: UnitSummary) -> bool:
    """Return True if the container (`unit`) never ran, because its start was interrupted."""
    status = snapshot.status_of(unit.id)
    return unit.state is UnitState.EXITED and status is not None and status.reason == START_CUT_OFF


def _final_exit_code(facts: PodFacts, name: str) -> int | None:
    """Return the exit code of an ended container; None if it has not ended, or its exit code is not known yet."""
    unit = facts.newest(name)
    if unit is None:
        code = stored_exit_code(facts, name, None)
        return LOST_EXIT_CODE if code is None and _was_running(facts, name) else code
    return exit_code_of(facts, unit) if unit.state is UnitState.EXITED else None


def _was_running(facts: PodFacts, name: str) -> bool:
    """Return True if the last published status shows the container running.

    Call it only if the runtime no longer has a unit of the container.
    """
    status = previous_of(facts.previous_status, name)
    return facts.snapshot is not None and status is not None and status.state.running is not None


def _runs_told(facts: PodFacts, name: str) -> int:
    """Return the number of the container's runs by the last published status: the restart count of its next run."""
    status = previous_of(facts.previous_status, name)
    return 0 if status is None else status.restart_count + _has_run(status)


def _has_run(status: ContainerStatus) -> bool:
    """Return True if the container's latest run in `status` really began; an interrupted start does not count."""
    before = status.last_state.terminated
    if status.state.running is not None or status.state.terminated is not None:
        return True
    return before is not None and before.container_id == status.container_id


def _ended_for_good(desired: DesiredPod, facts: PodFacts, container: Container) -> bool:
    if not _is_init(desired, container.name) and _is_kept(desired, facts, container):
        return False
    code = _final_exit_code(facts, container.name)
    if code is None or is_outdated(desired, facts, facts.newest(container.name)):
        return False
    return not _runs_again(desired, facts, container, code)


def _is_kept(desired: DesiredPod, facts: PodFacts, container: Container) -> bool:
    return workload_of(facts).is_kept(desired, facts, facts.newest(container.name))


def _runs_again(desired: DesiredPod, facts: PodFacts, container: Container, code: int) -> bool:
    return should_restart(
        container,
        desired.pod.spec.restart_policy,
        code,
        killed=killed_for(facts, container.name),
        is_init=_is_init(desired, container.name) and not is_sidecar(container),
    )


def is_past_backoff_limit(desired: DesiredPod, facts: PodFacts, now: Now) -> bool:
    """Return True if the restarts of all containers exceed the limit of the pod's Job; restarts that are due count, too."""
    limit = desired.pod.metadata.annotations.get(BACKOFF_LIMIT, "")
    if not limit.isdecimal() or facts.snapshot is None:
        return False
    counts = {due.name: due.attempt for due in due_units(desired, facts, now, fresh=False)}
    for container in (*init_units(desired.pod), *regular_units(desired.pod)):
        if container.name not in counts and (unit := facts.newest(container.name)) is not None:
            counts[container.name] = restarts_of(facts, unit)
    return sum(counts.values()) > int(limit)


def has_ended(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if the pod is finished.

    This is so if its last published phase is Succeeded or Failed, if an init container failed for good, or if all
    regular containers ended and will not run again.
    """
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


def restartable(desired: DesiredPod, facts: PodFacts, wanted: str) -> Iterator[tuple[str, UnitId]]:
    """Yield name and newest unit of each container that can be restarted. `wanted`: only this one; empty: all."""
    for container in (*sidecars(desired.pod), *regular_units(desired.pod)):
        unit = facts.newest(container.name)
        policy = restart_policy_of(container, desired.pod.spec.restart_policy)
        if unit is None or policy == NEVER or wanted not in ("", container.name):
            continue
        if unit.state.is_alive or policy == ALWAYS:
            yield container.name, unit.id


def wants_any_unit(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if a regular container of the pod would still run in a new sandbox."""
    if workload_of(facts).is_wanted_off(desired, facts):
        return False
    return not all(_ended_for_good(desired, facts, c) for c in regular_units(desired.pod))


def due_units(desired: DesiredPod, facts: PodFacts, now: Now, *, fresh: bool) -> Iterator[Due]:
    """Yield the containers to start, now or after a back-off, in the pod's current sandbox.

    `fresh` True: yield those to start in a sandbox that is still to be created.
    """
    sandbox = None if fresh else current_sandbox(facts)
    sandbox_id = sandbox.id if sandbox is not None else None
    initialized = sandbox_id is not None and is_initialized(desired, facts, sandbox_id)
    yield from _due_ephemeral(desired, facts, sandbox_id)
    if not fresh and any(unit.state.is_alive for _, unit in outdated_units(desired, facts)):
        return  # all must end before any starts again
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


def is_initialized(desired: DesiredPod, facts: PodFacts, sandbox_id: SandboxId) -> bool:
    """Return True if a regular container was created in the sandbox: its init containers do not run any more."""
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
    """Return (due, passed) for one init container.

    `due`: its next start, or None. `passed`: True if the containers after it may start. `initialized`: a regular
    container already ran in this sandbox.
    """
    unit = facts.newest(container.name)
    here = unit is not None and unit.sandbox_id == sandbox_id and not is_outdated(desired, facts, unit)
    if is_sidecar(container):
        due = _due(desired, facts, now, container, sandbox_id)
        started = here and unit is not None and facts.is_started(container, unit)
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
        unit = facts.newest(container.name)
        if unit is None or unit.state is UnitState.CREATED:
            yield Due(name=container.name, attempt=0)


def _due(
    desired: DesiredPod,
    facts: PodFacts,
    now: Now,
    container: Container,
    sandbox_id: SandboxId | None,
) -> Due | None:
    unit = facts.newest(container.name)
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
    starts_again = (in_new_sandbox and _is_init(desired, container.name)) or (
        not in_new_sandbox and is_outdated(desired, facts, unit)
    )
    if not starts_again and not _runs_again(desired, facts, container, code):
        return None
    exited_at = known.exited_at if known.exited_at is not None else now.mono
    return Due(
        name=container.name,
        attempt=restarts_of(facts, unit) + 1,
        at=restart_at(known.backoff, exited_at, now.mono, cap=facts.crash_cap_seconds),
    )


def _is_init(desired: DesiredPod, name: str) -> bool:
    return any(c.name == name for c in init_units(desired.pod))
