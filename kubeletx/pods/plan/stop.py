"""Stopping a pod: regular units in parallel, then sidecars in reverse order, all within one grace period.

    regular (all at once) ─► last sidecar ─► ... ─► first sidecar ─► sandbox ─► [removal] ─► a look that
    shows nothing left (T5 in docs/kubelet-parity.md)

A deletion removes the sandbox of a machine without stopping it first, if the runtime can switch machines off:
the end of the domain need not wait for the end of the pod's network, which external programs take down. A CRI
runtime is always asked to stop the sandbox first.

The grace period counts from the deletion request and may only shrink (T4). If a stop in flight has more time
than is left now, a second, shorter stop of the same unit is sent, as the kubelet does: the only case of two
calls for one unit.
"""

from __future__ import annotations

from kubeletx.api import SandboxState, UnitState, UnitSummary

from ..model.actions import RemoveSandbox, RemoveUnit, StopSandbox, StopUnit
from ..model.draft import Draft
from ..model.facts import DesiredPod, PodFacts
from ..model.roles import init_units, is_sidecar

MINIMUM_GRACE_SECONDS = 1
OVERTAKE_SECONDS = 1


def plan_stop_units(
    desired: DesiredPod, facts: PodFacts, draft: Draft, *, leave_sandboxes: bool = False
) -> bool:
    """Plan the next stops; True once no unit lives and every sandbox is stopped.

    `leave_sandboxes`: do not stop sandboxes, and do not wait for their stop.
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
    """Plan the removal of stopped units and sandboxes; True once a look begun after the removals finds none."""
    assert facts.snapshot is not None
    if draft.is_busy("sandbox"):
        return False
    if facts.snapshot.sandboxes:
        draft.end(RemoveSandbox(sandbox_id=facts.snapshot.sandboxes[0].id))
        return False
    if facts.snapshot.units:
        first = facts.snapshot.units[0]
        draft.end(RemoveUnit(name=first.name, unit_id=first.id, attempt=first.attempt))
        return False
    if facts.changed_at is not None and facts.snapshot.looked_at < facts.changed_at:
        draft.look(facts)
        return False
    return True


def _next_wave(desired: DesiredPod, living: list[UnitSummary]) -> list[UnitSummary]:
    """The units that may be stopped now: regular ones first, then sidecars from the last to the first."""
    sidecars = [c.name for c in init_units(desired.pod) if is_sidecar(c)]
    regular = [u for u in living if u.name not in sidecars]
    if regular:
        return regular
    for name in reversed(sidecars):
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
