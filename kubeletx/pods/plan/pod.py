"""`plan_pod`: derives a pod's next actions, and the time of the next plan, from (desired, facts, now).

A pod has one goal at a time. It is derived in each plan and never stored:

    RUN     its containers should run, by restart policy
    END     it finished, missed its deadline, was evicted or rejected: stop everything, but keep the binding
            (the stored choice of the runtime) and the dead containers for status and logs. The dead
            containers of an evicted pod are removed, because the disk may be short.
    DELETE  it was deleted: stop and remove everything, release the volumes, and remove the binding last

No I/O, no clock, no logging. An action that was lost in a crash is planned again from the next facts. No action
is planned while one with the same key is in flight. While a look (a read of the pod's state from its runtime) is
in flight, nothing new is started on the runtime, since the facts are about to change. While a create or start is
in flight, a look is delayed for up to `PATIENCE_SECONDS`, since its result would be outdated.
"""

from __future__ import annotations

from kubeletx.api import UnitState
from kubeletx.api.names import EVICTED, RUNTIME_NOT_READY, Event

from ..model.actions import (
    Bind,
    CreateSandbox,
    EnsureImage,
    Look,
    PrepareVolumes,
    ReadMessage,
    ReleaseVolumes,
    RemoveDirectories,
    Unbind,
)
from ..model.draft import Draft, Goal, Plan, PlannedEvent
from ..model.facts import Deletion, DesiredPod, Now, PodFacts
from ..model.phase import FAILED, FINAL
from ..model.roles import init_units, regular_units
from ..workloads.table import workload_of
from .doubt import in_doubt
from .progress import has_ended, is_blind, is_past_backoff_limit, wants_any_unit
from .sandbox import SandboxNeed, sandbox_need, stop_stale
from .stop import plan_evacuation, plan_removal, plan_stop_units
from .units import plan_units, wanted_now

PATIENCE_SECONDS = 1.0
"""While a create or start is in flight, a query waits at most this long, since the call would outdate its result."""

TRIES_BEFORE_LEAVING = 3
"""Failed removals of a sandbox without a network after which the deletion of its pod goes on."""


def goal_of(desired: DesiredPod, facts: PodFacts) -> Goal:
    """Derive the pod's goal.

    DELETE if the pod was deleted. END if it has ended or was rejected, or if the node ended it (eviction,
    deadline): such a `Deletion` has a reason. RUN otherwise.
    """
    if desired.is_ending:
        return Goal.DELETE
    if desired.deletion is not None or facts.rejection is not None:
        return Goal.END
    return Goal.END if has_ended(desired, facts) else Goal.RUN


def limit_end(desired: DesiredPod, facts: PodFacts, now: Now) -> Deletion | None:
    """Return the `Deletion` that ends a pod which has reached its activeDeadlineSeconds, or backoffLimit of its Job.

    None if no limit is reached, or if the pod is already ending or has ended (docs/kubelet-parity.md,
    row T8).
    """
    if facts.deadline_at is not None and facts.deadline_at <= now.mono:
        reason, message = (
            Event.DEADLINE_EXCEEDED,
            "Pod was active on the node longer than the specified deadline",
        )
    elif is_past_backoff_limit(desired, facts, now):
        reason, message = Event.BACKOFF_LIMIT_EXCEEDED, "Job has reached the specified backoff limit"
    else:
        return None
    if desired.deletion is not None or has_ended(desired, facts):
        return None
    return Deletion(requested_at=now.mono, grace_seconds=facts.grace_seconds, reason=reason, message=message)


def plan_pod(desired: DesiredPod, facts: PodFacts, now: Now) -> Plan:
    """Return the actions to start for this pod now, and when to plan again.

    The module docstring describes the rules.
    """
    if facts.outage is None and not facts.unbound and in_doubt(desired, facts):
        draft = Draft(Goal.DELETE if desired.is_ending else Goal.RUN, facts, now)
        draft.look(facts)
        return draft.plan("looks again for what is missing", is_partial=True, in_doubt=True)
    goal = goal_of(desired, facts)
    draft = Draft(goal, facts, now)
    if facts.unbound:
        return draft.plan("unbound", finished=True)
    if goal is Goal.END and _may_be_restarted(desired, facts):
        draft.read_overrides()
        return draft.plan("reads what users requested", is_partial=True, in_doubt=True)
    if facts.outage is None:
        _read_messages(desired, facts, draft)
    if goal is Goal.RUN:
        return _plan_run(desired, facts, draft)
    if goal is Goal.END:
        return _plan_end(desired, facts, draft)
    return _plan_delete(desired, facts, draft)


def _may_be_restarted(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if the pod ended while no agent ran: a user may have requested the restart of its containers."""
    is_unread = facts.recovered and facts.overrides is None and facts.snapshot is not None
    is_final = facts.previous_status is not None and facts.previous_status.phase in FINAL
    return is_unread and not is_final and desired.deletion is None and facts.rejection is None


def _plan_run(desired: DesiredPod, facts: PodFacts, draft: Draft) -> Plan:
    draft.wake(facts.deadline_at)
    if facts.runtime is None:
        if facts.bind_wanted and draft.is_due(facts.bind_failure):
            draft.do(Bind())
        return draft.plan("waits for a runtime")
    _prepare_volumes(facts, draft)
    workload_of(facts).plan_first(desired, facts, draft)
    if not _may_act(facts, draft):
        return draft.plan("looks before acting", is_partial=True)
    if _is_held(desired, draft):
        return draft.plan(f"waits for its source {desired.source}")
    need = sandbox_need(desired, facts)
    unusable = need in (SandboxNeed.NETWORK_CHANGED, SandboxNeed.NO_ADDRESS)
    is_stopping = stop_stale(facts, draft, newest_too=unusable)
    if need is not SandboxNeed.READY and not wants_any_unit(desired, facts):
        return draft.plan("nothing left to run")
    for name in wanted_now(desired, facts, draft.now, fresh=need is not SandboxNeed.READY):
        _ensure_image(name, facts, draft)
    if need is SandboxNeed.READY:
        plan_units(desired, facts, draft)
        return draft.plan("running")
    if is_stopping:
        return draft.plan(f"stops the old sandbox: {need.value}")
    _create_sandbox(desired, facts, draft)
    return draft.plan(f"needs a sandbox: {need.value}")


def _is_held(desired: DesiredPod, draft: Draft) -> bool:
    """Return True if the pod existed before the agent started and its source has not delivered it yet.

    Also request a wake-up at the end of this wait.
    """
    if desired.held_until is None or desired.held_until <= draft.now.mono:
        return False
    draft.wake(desired.held_until)
    return True


def _plan_end(desired: DesiredPod, facts: PodFacts, draft: Draft) -> Plan:
    if facts.runtime is None:
        return draft.plan("ended unbound")
    if (before := _before_stop(desired, facts, draft)) is not None:
        return before
    workload_of(facts).plan_end(desired, facts, draft)
    if not plan_stop_units(desired, facts, draft):
        return draft.plan("stops")
    if not facts.volumes.released and draft.is_due(facts.volumes.release_failure):
        draft.do(ReleaseVolumes())
    if _is_evicted(desired, facts) and not plan_removal(facts, draft):
        return draft.plan("removes what an evicted pod left")
    return draft.plan("ended")


def _before_stop(desired: DesiredPod, facts: PodFacts, draft: Draft) -> Plan | None:
    """Return the plan of a pod whose containers must not be stopped yet; None if they may be."""
    is_evacuating = plan_evacuation(desired, facts, draft)
    if not _may_act(facts, draft):
        return draft.plan("looks before stopping")
    if not is_evacuating:
        return None
    workload_of(facts).plan_evacuation(desired, facts, draft)
    return draft.plan("evacuates sessions")


def _is_evicted(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True for an evicted pod whose status is Failed: it has the exit codes, so its units may be removed."""
    status = facts.previous_status
    has_reported = status is not None and status.phase == FAILED
    return has_reported and desired.deletion is not None and desired.deletion.reason == EVICTED


def _plan_delete(desired: DesiredPod, facts: PodFacts, draft: Draft) -> Plan:
    if facts.runtime is not None and not (facts.outage is not None and _is_forced(desired)):
        if (before := _before_stop(desired, facts, draft)) is not None:
            return before
        workload = workload_of(facts)
        workload.plan_end(desired, facts, draft)
        leaves = workload.leaves_sandboxes(facts)
        has_stopped = plan_stop_units(desired, facts, draft, leave_sandboxes=leaves)
        if not (has_stopped and plan_removal(facts, draft)) and not _may_leave_sandboxes(desired, facts):
            return draft.plan("stops and removes")
    # Its result would bind a pod that is gone, and no later step would remove that binding.
    if facts.runtime is None and draft.is_busy("bind"):
        return draft.plan("waits for the binding in flight")
    if not facts.volumes.released:
        if draft.is_due(facts.volumes.release_failure):
            draft.do(ReleaseVolumes())
        return draft.plan("releases volumes")
    # After the volumes, which are mounted below these directories.
    if not facts.directories_gone:
        draft.end(RemoveDirectories())
        return draft.plan("removes directories")
    # Last: the binding is the record from which an interrupted deletion continues after a restart.
    draft.do(Unbind())
    return draft.plan("unbinds")


def _may_leave_sandboxes(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if the pod may go although its sandboxes cannot be removed.

    A runtime may need the pod network's configuration to remove a sandbox whose network was never made, and a node
    may lack it (containerd 1.6). No container is left then, and the pod never had an address. `Unbind` writes a
    tombstone, by which the sandboxes are removed later.
    """
    failure, previous = facts.stop_failure, facts.previous_status
    if failure is None or failure.count < TRIES_BEFORE_LEAVING or "sandbox" in facts.in_flight:
        return False
    if (
        desired.pod.spec.host_network
        or not facts.expects_address
        or (previous is not None and previous.pod_ips)
    ):
        return False
    return facts.snapshot is not None and not facts.snapshot.units


def _read_messages(desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Plan to read the termination message of each container's newest unit that has ended, once per unit."""
    for container in (*init_units(desired.pod), *regular_units(desired.pod)):
        unit = facts.newest(container.name)
        if unit is None or unit.state is not UnitState.EXITED:
            continue
        if unit.id not in facts.unit(container.name).termination_messages:
            draft.do(ReadMessage(name=container.name, unit_id=unit.id, attempt=unit.attempt))


def _is_forced(desired: DesiredPod) -> bool:
    return desired.deletion is not None and desired.deletion.force


def _may_act(facts: PodFacts, draft: Draft) -> bool:
    """Return True if the facts are fresh enough to change something on the runtime.

    False while the runtime does not answer, and while the pod's state must first be read from the runtime: that
    read is then in flight, or is planned here.
    """
    if facts.outage is not None:
        return False
    now = draft.now.mono
    snapshot = facts.snapshot
    if snapshot is None:
        draft.look(facts)
        return False
    if facts.unsettled_until is not None and snapshot.looked_at < facts.unsettled_until:
        if now < facts.unsettled_until:
            draft.wake(facts.unsettled_until)
        else:
            draft.look(facts)
        return False
    if facts.look_wanted_at is not None:
        if facts.look_wanted_at > now:
            draft.wake(facts.look_wanted_at)
        elif _is_starting(facts) and now < facts.look_wanted_at + PATIENCE_SECONDS:
            draft.wake(facts.look_wanted_at + PATIENCE_SECONDS)
        else:
            draft.do(Look())
            return False
    elif is_blind(facts):
        draft.look(facts)
    return not draft.is_busy("look")


def _is_starting(facts: PodFacts) -> bool:
    return any(key == "sandbox" or key.startswith("unit/") for key in facts.in_flight) and not facts.stopping


def _prepare_volumes(facts: PodFacts, draft: Draft) -> None:
    is_old = not facts.volumes.ready or facts.volumes.stale_at is not None
    if is_old and draft.is_due(facts.volumes.failure):
        draft.do(PrepareVolumes())


def _ensure_image(name: str, facts: PodFacts, draft: Draft) -> None:
    unit = facts.unit(name)
    if unit.image is None and draft.is_due(unit.image_failure):
        draft.do(EnsureImage(name=name))


def _create_sandbox(desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    if not facts.volumes.ready:
        return
    if not facts.runtime_ready:
        text = f"runtime {facts.runtime} is not ready; the pod starts when it is"
        draft.notice = PlannedEvent(reason=RUNTIME_NOT_READY, message=text)
        return
    if not (facts.network_ready or desired.pod.spec.host_network):
        why = f": {facts.network_problem}" if facts.network_problem else ""
        draft.notice = PlannedEvent(reason=Event.NETWORK_NOT_READY, message=f"network is not ready{why}")
        return
    wanted = wanted_now(desired, facts, draft.now, fresh=True)
    if facts.image_before_sandbox and any(facts.unit(name).image is None for name in wanted):
        return
    if draft.is_due(facts.sandbox_failure):
        draft.do(CreateSandbox(attempt=_next_attempt(facts)))


def _next_attempt(facts: PodFacts) -> int:
    sandboxes = facts.snapshot.sandboxes if facts.snapshot is not None else ()
    return max((s.attempt + 1 for s in sandboxes), default=0)
