"""Finds the current sandbox of a pod, and decides whether it needs a new one (docs/kubelet-parity.md, row L2). Pure."""

from __future__ import annotations

import enum

from kubeletx.api import SandboxState, SandboxSummary, UnitState

from ..model.actions import StopSandbox
from ..model.draft import Draft
from ..model.facts import DesiredPod, PodFacts


class SandboxNeed(enum.Enum):
    """Reason that a pod needs a new sandbox; READY: it needs none. The values are texts for the log."""

    READY = "ready"
    MISSING = "there is none"
    NOT_READY = "the sandbox is not ready"
    NETWORK_CHANGED = "the network namespace differs"
    NO_ADDRESS = "the sandbox has no address"


def current_sandbox(facts: PodFacts) -> SandboxSummary | None:
    """Return the pod's newest sandbox if it is ready; None otherwise."""
    if facts.snapshot is None or not facts.snapshot.sandboxes:
        return None
    newest = facts.snapshot.sandboxes[0]
    return newest if newest.state is SandboxState.READY else None


def sandbox_need(desired: DesiredPod, facts: PodFacts) -> SandboxNeed:
    """Return READY if the pod's newest sandbox can be used, else the reason that a new one is needed."""
    snapshot = facts.snapshot
    if snapshot is None or not snapshot.sandboxes:
        return SandboxNeed.MISSING
    if current_sandbox(facts) is None:
        return SandboxNeed.NOT_READY
    status = snapshot.sandbox_status
    # Not queried yet: replacing a sandbox for lack of knowledge would kill a running pod.
    if status is None:
        return SandboxNeed.READY
    if status.host_network != bool(desired.pod.spec.host_network):
        return SandboxNeed.NETWORK_CHANGED
    if not status.host_network and not status.ips and facts.expects_address:
        return SandboxNeed.NO_ADDRESS
    return SandboxNeed.READY


def stop_stale(facts: PodFacts, draft: Draft, *, newest_too: bool) -> bool:
    """Plan to stop the sandboxes and units that must end before a new sandbox is created.

    The newest sandbox is kept if it is ready and `newest_too` is False. All other ready sandboxes and the living
    units in them are stopped, and also living units of dead sandboxes, since units can survive the death of their
    sandbox's process. Return True while any of these sandboxes and units is still alive.
    """
    snapshot = facts.snapshot
    assert snapshot is not None
    usable = None if newest_too else current_sandbox(facts)
    usable_id = usable.id if usable is not None else None
    is_stopping = False
    for unit in snapshot.units:
        # UNKNOWN may be alive: two copies of a container could write to one volume.
        may_live = unit.state.is_alive or unit.state is UnitState.UNKNOWN
        if may_live and unit.sandbox_id != usable_id:
            is_stopping = True
            text = "Pod sandbox changed, it will be killed and re-created"
            draft.stop(unit, facts, "SandboxChanged", text, run_pre_stop=False)
    for sandbox in snapshot.sandboxes:
        if sandbox.state is SandboxState.READY and sandbox.id != usable_id:
            is_stopping = True
            is_stray = sandbox is not snapshot.sandboxes[0]
            message = f"Stopping sandbox {sandbox.id}: the pod has a newer one" if is_stray else ""
            draft.end(StopSandbox(sandbox_id=sandbox.id, message=message))
    return is_stopping
