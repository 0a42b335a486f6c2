"""Stopping a pod: regular containers in parallel, then sidecars in reverse order, all within one grace period.

    evacuation of sessions, if there are any ─► regular (all at once) ─► last sidecar ─► ... ─► first sidecar ─► sandbox
      ─► if the pod is deleted: removal ─► a query that shows nothing left (docs/kubelet-parity.md, row T5)

If the runtime can switch machines off, the deletion of a machine pod removes the sandbox without stopping it
first: the machine's end need not wait for external programs that take down the pod's network. With a CRI runtime
the sandbox is always stopped first.

The evacuation is a part of the grace period and leaves enough of it for the stops. It is skipped if the deletion is
forced, if the grace period is 0, and if no container runs; it is cut short if this becomes so, or if the grace period
shrinks.

The grace period counts from the deletion request and may only shrink (row T4). If a running stop has more time than
is left now, a second stop of the same unit is sent with the shorter time, as the kubelet does. This is the only
case in which two calls change one unit at the same time.
"""

from __future__ import annotations

from kubeletx.api import SandboxState, UnitState, UnitSummary

from ..model.actions import Evacuate, RemoveSandbox, RemoveUnit, StopSandbox, StopUnit
from ..model.draft import Draft
from ..model.facts import Deletion, DesiredPod, PodFacts
from ..model.roles import sidecars

MINIMUM_GRACE_SECONDS = 1
OVERTAKE_SECONDS = 1
RESERVED_SECONDS = 10.0
"""Part of the grace period that an evacuation leaves for the stops; at most half of the grace period is reserved."""
SETTLE_SECONDS = 0.1
"""Time between the deadline that the action `Evacuate` gets and the end of the wait for it."""


def plan_evacuation(desired: DesiredPod, facts: PodFacts, draft: Draft) -> bool:
    """Plan to evacuate a pod that ends, if it has sessions. Return True while its containers must not be stopped yet."""
    if not (draft.is_busy(Evacuate.subject) or (facts.has_sessions and not facts.is_evacuated)):
        return False
    ends_at = _evacuation_ends_at(desired.deletion)
    if ends_at is None or ends_at <= draft.now.mono or not _is_alive(facts):
        draft.cancel(Evacuate.subject)
        return False
    draft.wake(ends_at)
    draft.do(Evacuate(deadline=ends_at - SETTLE_SECONDS))
    return True


def plan_stop_units(
    desired: DesiredPod, facts: PodFacts, draft: Draft, *, leave_sandboxes: bool = False
) -> bool:
    """Plan the next stops of the pod. Return True once no unit is alive and every sandbox is stopped.

    `leave_sandboxes`: do not stop sandboxes; return True once no unit is alive.
    """
    assert facts.snapshot is not None
    if draft.is_busy("sandbox"):
        return False
    living = [u for u in facts.snapshot.units if u.state.is_alive or u.state is UnitState.UNKNOWN]
    wave = _next_wave(desired, living)
    grace = _grace_left(desired, facts, draft.now.mono)
    for unit in wave:
        _stop(unit, grace, facts, draft)
    if living or _is_starting(facts):
        return False
    if leave_sandboxes:
        return True
    stopped = True
    for sandbox in facts.snapshot.sandboxes:
        if sandbox.state is SandboxState.READY:
            stopped = False
            draft.end(StopSandbox(sandbox_id=sandbox.id))
    return stopped


def plan_removal(facts: PodFacts, draft: Draft) -> bool:
    """Plan the removal of the pod's stopped sandboxes and units from the runtime, one at a time.

    Return True once a query that began after the last removal shows that none is left.
    """
    assert facts.snapshot is not None
    if draft.is_busy("sandbox"):
        return False
    if facts.snapshot.sandboxes:
        # The sandbox first: runtimes remove its units with it in one call.
        draft.end(RemoveSandbox(sandbox_id=facts.snapshot.sandboxes[0].id))
        return False
    if facts.snapshot.units:
        first = facts.snapshot.units[0]
        draft.end(RemoveUnit(name=first.name, unit_id=first.id, attempt=first.attempt))
        return False
    # An empty snapshot from before the last removal proves nothing.
    if facts.changed_at is not None and facts.snapshot.looked_at < facts.changed_at:
        draft.look(facts)
        return False
    return True


def _evacuation_ends_at(deletion: Deletion | None) -> float | None:
    """Return the monotonic time until which the stops wait for the evacuation; None: they do not wait."""
    if deletion is None or deletion.force or not deletion.grace_seconds:
        return None
    grace = deletion.grace_seconds
    return deletion.requested_at + grace - min(RESERVED_SECONDS, grace / 2)


def _is_alive(facts: PodFacts) -> bool:
    return facts.snapshot is not None and any(unit.state.is_alive for unit in facts.snapshot.units)


def _next_wave(desired: DesiredPod, living: list[UnitSummary]) -> list[UnitSummary]:
    """Return the units to stop now: all but the sidecars, then one sidecar at a time from the last to the first."""
    last = [sidecar.name for sidecar in sidecars(desired.pod)]
    regular = [u for u in living if u.name not in last]
    if regular:
        return regular
    for name in reversed(last):
        named = [u for u in living if u.name == name]
        if named:
            return named
    return []


def _grace_left(desired: DesiredPod, facts: PodFacts, now: float) -> int:
    deletion = desired.deletion
    if deletion is None:
        return max(facts.grace_seconds, MINIMUM_GRACE_SECONDS)
    if deletion.grace_seconds == 0 and deletion.force:
        return 0
    left = deletion.requested_at + deletion.grace_seconds - now
    return max(round(left), MINIMUM_GRACE_SECONDS)


def _stop(unit: UnitSummary, grace: int, facts: PodFacts, draft: Draft) -> None:
    message = f"Stopping container {unit.name}"
    action = StopUnit(name=unit.name, unit_id=unit.id, grace_seconds=grace, reason="Killing", message=message)
    ends_at = facts.stopping.get(unit.name)
    if ends_at is not None and draft.now.mono + grace + OVERTAKE_SECONDS < ends_at:
        action = StopUnit(
            name=unit.name,
            unit_id=unit.id,
            grace_seconds=grace,
            message=message,
            run_pre_stop=False,
            overtakes=True,
        )
    draft.end(action)


def _is_starting(facts: PodFacts) -> bool:
    return any(key.startswith("unit/") for key in facts.in_flight)
