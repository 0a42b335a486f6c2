"""Plans for the containers of a pod whose sandbox is ready: stop, start, resize and remove them."""

from __future__ import annotations

from kubeletx.api import SandboxId, UnitState, UnitSummary
from kubeletx.api.names import CONTAINER_HASH, RUNTIME_UNSUPPORTED
from kubeletx.kube.manifests.hashes import container_hash
from kubeletx.kube.types.core import Container, Probe

from ..model.actions import RemoveSandbox, RemoveUnit, ResizePod, RunPostStart, StartUnit
from ..model.draft import Draft
from ..model.facts import DesiredPod, HookState, Now, PodFacts
from ..model.restart_policy import RESTART_ALL, RESTART_REQUESTED, SPEC_CHANGED
from ..model.roles import init_units, is_sidecar, regular_units, sidecars
from ..model.runs import killed_for
from ..workloads.table import workload_of
from .garbage import dead_objects
from .progress import due_units, is_initialized, was_cut_off
from .resize_container import plan_resize
from .resize_pod import plan_pod_resize
from .restart_all import due_generation, outdated_units
from .sandbox import current_sandbox

STARTS_AT_ONCE = 8
"""Containers of one pod that are created and started at a time.

Each holds its spec, with variables and arguments of up to megabytes, and a deletion waits for their calls.
"""


def wanted_now(desired: DesiredPod, facts: PodFacts, now: Now, *, fresh: bool) -> tuple[str, ...]:
    """Return the names of the containers to start now, without back-off; their images are needed.

    `fresh`: plan for a sandbox that is still to be created, in which init containers run again.
    """
    return tuple(due.name for due in due_units(desired, facts, now, fresh=fresh) if due.at is None)


def plan_units(desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Plan stops, starts, resizes and removals of the containers in the pod's current sandbox, which must be ready."""
    sandbox = current_sandbox(facts)
    assert sandbox is not None
    if _restarts_all(desired, facts, draft):
        return
    workload = workload_of(facts)
    if not workload.resizes_itself:
        plan_pod_resize(desired.pod, facts, draft)
    if facts.own.no_ephemeral and desired.pod.spec.ephemeral_containers:
        draft.refuse(RUNTIME_UNSUPPORTED, facts.own.no_ephemeral)
    for container in (*sidecars(desired.pod), *regular_units(desired.pod)):
        unit = facts.newest(container.name)
        if draft.is_busy(ResizePod.subject):
            continue  # a pod resize changes units, too; only one call at a time may change a unit
        if unit is not None and unit.sandbox_id == sandbox.id:
            _tend(container, unit, facts, draft)
            if not workload.resizes_itself:
                plan_resize(container, unit, facts, draft)
            workload.plan_unit(unit, desired, facts, draft)
    for container in (c for c in init_units(desired.pod) if not is_sidecar(c)):
        unit = facts.newest(container.name)
        if unit is not None and unit.sandbox_id == sandbox.id and not draft.is_busy(ResizePod.subject):
            _tend_init(container, unit, facts, draft)
    assert facts.snapshot is not None
    _remove_cut_off(desired, facts, draft, sandbox.id)
    generation = due_generation(desired, facts)
    held = _held_back(desired, facts, draft)
    all_due = tuple(due_units(desired, facts, draft.now, fresh=False))
    workload.plan_pod(desired, facts, draft, is_settled=not all_due)
    starting = sum(draft.is_busy(f"{StartUnit.subject}/{due.name}") for due in all_due)
    for due in all_due:
        if due.at is not None:
            draft.wake(due.at)
            continue
        if due.name in held:
            continue
        if facts.snapshot.sandbox_status is None:
            draft.look(facts)  # a list showed the sandbox, but not its address, which a new unit needs
            return
        known = facts.unit(due.name)
        if facts.volumes.ready and known.image is not None and draft.is_due(known.failure):
            if starting >= STARTS_AT_ONCE:
                continue
            starting += not draft.is_busy(f"{StartUnit.subject}/{due.name}")
            draft.do(
                StartUnit(name=due.name, attempt=due.attempt, sandbox_id=sandbox.id, generation=generation)
            )
    _tidy(facts, draft)


def _restarts_all(desired: DesiredPod, facts: PodFacts, draft: Draft) -> bool:
    """Plan to stop living units of an earlier generation (see `plan.restart_all`). Return True if there are any."""
    alive = [(c, unit) for c, unit in outdated_units(desired, facts) if unit.state.is_alive]
    for _, unit in alive:
        _kill(unit, facts, draft, RESTART_ALL, "will be restarted with all containers of the pod")
    return bool(alive)


def _held_back(desired: DesiredPod, facts: PodFacts, draft: Draft) -> frozenset[str]:
    """Return the names of the regular containers that must wait for the postStart hook of an earlier container.

    Containers are started in spec order and do not wait for each other's readiness. As with the kubelet, however,
    the following containers start only after the postStart hook is done; sidecar injectors depend on this. A
    container that cannot start now (image, configuration, back-off) delays no other container.
    """
    regular = regular_units(desired.pod)
    for index, container in enumerate(regular):
        has_hook = container.lifecycle is not None and container.lifecycle.post_start is not None
        if has_hook and _holds_back(container, desired, facts, draft):
            return frozenset(sibling.name for sibling in regular[index + 1 :])
    return frozenset()


def _holds_back(container: Container, desired: DesiredPod, facts: PodFacts, draft: Draft) -> bool:
    known, unit = facts.unit(container.name), facts.newest(container.name)
    if unit is not None and unit.state.is_alive and known.hook_unit == unit.id:
        return known.hook in (HookState.PENDING, HookState.RUNNING)
    failed = known.failure if known.image is not None else known.image_failure
    due = due_units(desired, facts, draft.now, fresh=False)
    return failed is None and any(start.name == container.name and start.at is None for start in due)


def _remove_cut_off(desired: DesiredPod, facts: PodFacts, draft: Draft, sandbox_id: SandboxId) -> None:
    """Plan to remove containers whose start was interrupted; they are created again with the same attempt number.

    Also remove init containers that were created and not started beside regular containers; they must not run then.
    """
    assert facts.snapshot is not None
    once = {container.name for container in init_units(desired.pod) if not is_sidecar(container)}
    late = once if is_initialized(desired, facts, sandbox_id) else set()
    for unit in facts.snapshot.units:
        is_late = unit.state is UnitState.CREATED and unit.name in late
        if (is_late or was_cut_off(facts.snapshot, unit)) and facts.newest(unit.name) is unit:
            draft.end(RemoveUnit(name=unit.name, unit_id=unit.id, attempt=unit.attempt))


def _tend(container: Container, unit: UnitSummary, facts: PodFacts, draft: Draft) -> None:
    """Plan to stop a container's unit or to run its postStart hook, if one of these is needed.

    It is stopped if its state is unknown, its definition changed, a user wants it to be restarted, its postStart hook
    failed, or its startup or liveness probe failed.
    """
    if unit.state is UnitState.UNKNOWN:
        _kill_unknown(unit, facts, draft)
        return
    if not unit.state.is_alive:
        return
    written = unit.annotations.get(CONTAINER_HASH)
    if written is not None and written != container_hash(container):
        _kill(unit, facts, draft, SPEC_CHANGED, "definition changed, will be restarted")
        return
    known = facts.unit(container.name)
    if killed_for(facts, container.name) == RESTART_REQUESTED:
        _kill(unit, facts, draft, RESTART_REQUESTED, "will be restarted on request")
        return
    if known.hook_unit == unit.id:
        if known.hook is HookState.PENDING:
            draft.do(RunPostStart(name=container.name, unit_id=unit.id))
        elif known.hook is HookState.FAILED:
            _kill(unit, facts, draft, "FailedPostStartHook", "failed its postStart hook")
            return
    if unit.state is not UnitState.RUNNING or known.probes is None or known.probes.unit_id != unit.id:
        return
    if known.probes.startup is False:
        _kill_probed(container.startup_probe, unit, facts, draft, "startup")
    elif known.probes.liveness is False:
        _kill_probed(container.liveness_probe, unit, facts, draft, "liveness")


def _tend_init(container: Container, unit: UnitSummary, facts: PodFacts, draft: Draft) -> None:
    if unit.state is UnitState.UNKNOWN:
        _kill_unknown(unit, facts, draft)
    elif not workload_of(facts).resizes_itself:
        plan_resize(container, unit, facts, draft)


def _kill_unknown(unit: UnitSummary, facts: PodFacts, draft: Draft) -> None:
    _kill(unit, facts, draft, "Unknown", "is in unknown state, try killing it before starting")


def _kill_probed(probe: Probe | None, unit: UnitSummary, facts: PodFacts, draft: Draft, what: str) -> None:
    grace = probe.termination_grace_period_seconds if probe is not None else None
    _kill(unit, facts, draft, "Unhealthy", f"failed {what} probe, will be restarted", grace_seconds=grace)


def _kill(
    unit: UnitSummary,
    facts: PodFacts,
    draft: Draft,
    reason: str,
    text: str,
    grace_seconds: int | None = None,
) -> None:
    own = {} if grace_seconds is None else {"grace_seconds": grace_seconds}
    draft.stop(unit, facts, reason, f"Container {unit.name} {text}", **own)


def _tidy(facts: PodFacts, draft: Draft) -> None:
    """Plan to remove one dead unit or sandbox that is no longer needed (see `plan.garbage`).

    Nothing is planned while any action of the pod is in flight.
    """
    snapshot = facts.snapshot
    assert snapshot is not None
    if facts.in_flight:
        return
    garbage = dead_objects(snapshot.sandboxes, snapshot.units)
    if garbage.units:
        unit = garbage.units[0]
        draft.end(RemoveUnit(name=unit.name, unit_id=unit.id, attempt=unit.attempt))
    elif garbage.sandboxes:
        draft.end(RemoveSandbox(sandbox_id=garbage.sandboxes[0].id))
