"""Parts of a pod that its runtime suddenly no longer shows: they count as lost only after several looks in a row.

A runtime that recovers from a fault may answer with lists that lack sandboxes and containers. Such a list would stay in
effect until the next one, which may be minutes later, and the plan would start what still runs a second time.

    a list lacks what the published status shows ─► look, look, look: still missing ─► plan and status believe it
                                                      └─ shown again ─► nothing was lost

Meanwhile the plan does nothing else, and the published status stays as it is. Pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api.names import POD_READY_TO_START

from ..model.facts import DesiredPod, Doubt, PodFacts
from ..model.roles import init_units, is_sidecar
from .progress import has_ended
from .sandbox import current_sandbox

CONFIRMING_LOOKS = 3
"""Looks in a row that must lack a part. The first may be the one that raised the doubt."""


def in_doubt(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True if a part of the pod is missing on the runtime, and too few looks have confirmed that."""
    missing = _missing(desired, facts)
    if not missing:
        return False
    return facts.doubt is None or facts.doubt.missing != missing or facts.doubt.looks < CONFIRMING_LOOKS


def without_old_doubt(desired: DesiredPod, facts: PodFacts) -> PodFacts:
    """Drop the doubt if the snapshot shows everything again, or if other parts are missing now."""
    is_old = facts.doubt is not None and facts.doubt.missing != _missing(desired, facts)
    return replace(facts, doubt=None) if is_old else facts


def count_confirming(desired: DesiredPod, facts: PodFacts) -> PodFacts:
    """Count a look that the runtime has answered. `facts`: with the snapshot of this look."""
    missing = _missing(desired, facts)
    doubt = without_old_doubt(desired, facts).doubt
    looks = doubt.looks if doubt is not None else 0
    return replace(facts, doubt=Doubt(missing=missing, looks=looks + 1) if missing else None)


def _missing(desired: DesiredPod, facts: PodFacts) -> frozenset[str]:
    """Return the ids of the containers, and the addresses of the sandbox, which are published and not in the snapshot.

    These are containers that run and, unless the pod is ending, init containers that have ended, which would run again.
    The sandbox is missing if it is not ready; if the pod is ending, only if it is not listed at all.
    """
    previous, snapshot = facts.previous_status, facts.snapshot
    if previous is None or snapshot is None:
        return frozenset()
    missing = {
        status.container_id or status.name
        for status in (*previous.init_container_statuses, *previous.container_statuses)
        if status.state.running is not None and facts.newest(status.name) is None
    }
    had_sandbox = any(
        condition.type == POD_READY_TO_START and condition.status == "True"
        for condition in previous.conditions
    )
    is_lacking = not snapshot.sandboxes
    if desired.deletion is None:
        once = {unit.name for unit in init_units(desired.pod) if not is_sidecar(unit)}
        missing |= {
            status.container_id or status.name
            for status in previous.init_container_statuses
            if status.name in once
            and status.state.terminated is not None
            and facts.newest(status.name) is None
        }
        is_lacking = current_sandbox(facts) is None and not has_ended(desired, facts)
    if had_sandbox and is_lacking:
        missing |= {"sandbox", *(ip.ip for ip in previous.pod_ips)}
    return frozenset(missing)
