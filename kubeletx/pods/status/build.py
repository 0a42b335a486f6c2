"""`build_status`: builds the `PodStatus` of a pod from its desired state, its facts, the time and the node. Pure.

    containers   containers.py        one status per container, in spec order
    phase        ../model/phase.py    from the container statuses
    conditions   conditions.py        from the container statuses and the phase

This file adds these rules:

- Succeeded and Failed are final, with their reason and message.
- No pod is Succeeded or Failed while a container of it runs or will run again, so that no controller starts a
  replacement too early. A pod that the node ends (eviction, deadline) becomes Failed once nothing of it runs. A
  rejected pod is Failed at once and shows no containers (A2).
- A pod that was deleted in the API server becomes Failed or Succeeded once nothing of it runs, even if nothing of it
  ever ran (end.py), since finalizers of controllers may wait for that.
- A pod that waits for a runtime is Pending; the reason is in the pod's reason and message and in each container.
- While the runtime does not answer, the status stays as last seen, with two exceptions: network probes still change
  readiness, and condition kubeletx.io/RuntimeReachable is False.
- Paused and suspended units are shown as running but not ready; their true state is in condition
  kubeletx.io/UnitsRunning.
- Equal facts give an equal status, so that callers can detect changes by comparison.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from kubeletx.api import RuntimeName, UnitState, UnitSummary
from kubeletx.kube.qos import qos_class
from kubeletx.kube.requests import effective_requests, enforceable_limits
from kubeletx.kube.types.core import (
    ContainerStatus,
    HostIP,
    Pod,
    PodIP,
    PodStatus,
    ResourceRequirements,
)
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from ..model.draft import Goal
from ..model.facts import DesiredPod, Fact, Now, PodFacts, Rejection
from ..model.frame import frame_of
from ..model.phase import FAILED, FINAL, PENDING, RUNNING, SUCCEEDED, phase_of
from ..model.roles import regular_units
from ..plan.pod import goal_of
from ..plan.resize_container import granted_pod
from ..plan.sandbox import current_sandbox
from ..workloads.table import workload_for
from .conditions import build_conditions, has_ready_sandbox
from .containers import ephemeral_statuses, init_statuses, regular_statuses
from .end import ended_statuses
from .waiting import pull_error_ends_at

REJECTED = "Pod was rejected: "


class NodeIdentity(Fact, frozen=True, kw_only=True):
    """Data about the node that is needed for a pod's status.

    `host_ips`: the node's addresses, the primary one first, at most one per IP family. `backends`: runtime → name in
    its version response, such as ``containerd``, used before ``://`` in container IDs; may be a live view.
    """

    name: str
    host_ips: tuple[str, ...] = ()
    backends: Mapping[RuntimeName, str] = {}


class _End(Fact, frozen=True, kw_only=True):
    """Phase, reason and message for the pod's status."""

    phase: str
    reason: str | None = None
    message: str | None = None


def build_status(desired: DesiredPod, facts: PodFacts, now: Now, node: NodeIdentity) -> PodStatus:
    """Build the pod's whole status as of `now`."""
    pod, previous = desired.pod, facts.previous_status
    goal = goal_of(desired, facts)
    frame = frame_of(desired, facts, now, node.backends, will_run=goal is Goal.RUN)
    if facts.rejection is not None:
        init: tuple[ContainerStatus, ...] = ()
        regular: tuple[ContainerStatus, ...] = ()
    else:
        init, regular = init_statuses(frame), regular_statuses(frame)
    is_terminated = _is_terminated(desired, facts, goal, (*init, *regular))
    if is_terminated:
        init, regular = ended_statuses(pod, init, regular)
    end = _end(desired, facts, goal, (*init, *regular))
    if is_terminated and end.phase not in FINAL:
        end = replace(end, phase=FAILED)
    regular = _unready(regular) if end.phase in FINAL else regular
    pod_ips = _pod_ips(pod, facts, node)
    whole = _whole(pod, facts) if _is_placed(facts) else ResourceRequirements()
    status = PodStatus(
        observed_generation=pod.metadata.generation,
        phase=end.phase,
        reason=end.reason,
        message=end.message,
        conditions=build_conditions(desired, facts, end.phase, (*init, *regular), now.wall),
        host_ip=node.host_ips[0] if node.host_ips else None,
        host_ips=tuple(HostIP(ip=ip) for ip in node.host_ips),
        pod_ip=pod_ips[0] if pod_ips else None,
        pod_ips=tuple(PodIP(ip=ip) for ip in pod_ips),
        start_time=facts.started_at or (previous.start_time if previous is not None else None),
        init_container_statuses=init,
        container_statuses=regular,
        ephemeral_container_statuses=ephemeral_statuses(frame) if facts.rejection is None else (),
        qos_class=(previous.qos_class if previous is not None else None) or qos_class(pod.spec),
        nominated_node_name=pod.status.nominated_node_name,
        resource_claim_statuses=pod.status.resource_claim_statuses,
        allocated_resources=whole.requests,
        resources=whole,
    )
    return workload_for(pod, facts).with_status(status, pod, facts)


def stored_rejection(status: PodStatus | None) -> Rejection | None:
    """Return the rejection recorded in a status that an earlier agent process published; None if there is none."""
    if status is None or status.phase != FAILED or not (status.message or "").startswith(REJECTED):
        return None
    return Rejection(reason=status.reason or "", message=(status.message or "").removeprefix(REJECTED))


def status_changes_at(facts: PodFacts, now: Now) -> float | None:
    """Return the next monotonic time at which the status changes only because time passes; None if there is none.

    The only case is a failed image pull: it is shown with its own reason first, and as ImagePullBackOff after
    `waiting.PULL_ERROR_SHOWN_SECONDS`.
    """
    times = [pull_error_ends_at(known.image_failure) for known in facts.units.values()]
    return min((at for at in times if at is not None and at > now.mono), default=None)


# --- phase ---------------------------------------------------------------------------------------------


def _end(desired: DesiredPod, facts: PodFacts, goal: Goal, statuses: tuple[ContainerStatus, ...]) -> _End:
    """Decide the pod's phase, reason and message; the first rule that applies counts."""
    for known in (facts.previous_status, desired.pod.status):
        if known is not None and known.phase in FINAL:
            return _End(phase=known.phase, reason=known.reason, message=known.message)
    if facts.rejection is not None:
        return _End(phase=FAILED, reason=facts.rejection.reason, message=REJECTED + facts.rejection.message)
    computed = _computed_phase(desired, facts, goal, statuses)
    deletion = desired.deletion
    if goal is Goal.END and deletion is not None and deletion.reason:
        if not _lives(facts, statuses):
            phase = SUCCEEDED if deletion.has_succeeded else FAILED
            return _End(phase=phase, reason=deletion.reason, message=deletion.message or None)
        return _End(phase=_not_final(computed, desired.pod, facts, statuses))
    if facts.waiting is not None and goal is Goal.RUN:
        return _End(phase=computed, reason=facts.waiting.reason, message=facts.waiting.message)
    return _End(phase=computed)


def _computed_phase(
    desired: DesiredPod, facts: PodFacts, goal: Goal, statuses: tuple[ContainerStatus, ...]
) -> str:
    previous = facts.previous_status
    if facts.snapshot is None and previous is not None and previous.phase is not None:
        return previous.phase
    phase = phase_of(
        desired.pod,
        statuses,
        initialized=_ran_here(desired.pod, facts),
        is_over=goal is Goal.DELETE and desired.traits.terminal_on_delete,
    )
    if goal is Goal.RUN or _lives(facts, statuses):
        return _not_final(phase, desired.pod, facts, statuses)
    return phase


def _not_final(phase: str, pod: Pod, facts: PodFacts, statuses: tuple[ContainerStatus, ...]) -> str:
    """Return the phase, with Succeeded and Failed replaced by Running or the previous phase.

    Called for a pod with containers that still run or will run again, for example after a failed probe or a changed
    image. The exit codes alone would make its phase final.
    """
    if phase not in FINAL:
        return phase
    regular = {container.name for container in regular_units(pod)}
    if any(status.name in regular and status.state.running is not None for status in statuses):
        return RUNNING
    previous = facts.previous_status
    return previous.phase if previous is not None and previous.phase is not None else PENDING


def _ran_here(pod: Pod, facts: PodFacts) -> bool:
    """Return True if a regular container was created in the current sandbox, so initialisation is finished."""
    sandbox = current_sandbox(facts)
    if sandbox is None or facts.snapshot is None:
        return facts.finished_init
    regular = {container.name for container in regular_units(pod)}
    return any(u.sandbox_id == sandbox.id and u.name in regular for u in facts.snapshot.units)


def _lives(facts: PodFacts, statuses: tuple[ContainerStatus, ...]) -> bool:
    """Return True if a container of the pod runs, or its sandbox or a container is being changed."""
    if any(key == "sandbox" or key.startswith("unit/") for key in facts.in_flight):
        return True
    if facts.snapshot is None:
        return any(status.state.running is not None for status in statuses)
    return any(unit.state.is_alive for unit in facts.snapshot.units)


def _is_terminated(
    desired: DesiredPod, facts: PodFacts, goal: Goal, statuses: tuple[ContainerStatus, ...]
) -> bool:
    """Return True if nothing of the pod runs any more after its end was requested.

    This applies to a pod deleted in the API server, or ended by the node (deadline, eviction).
    """
    if facts.rejection is not None:
        return False
    if goal is Goal.END:
        ended_here = desired.deletion is not None and bool(desired.deletion.reason)
        return ended_here and not _lives(facts, statuses)
    return desired.traits.terminal_on_delete and goal is Goal.DELETE and _has_stopped(facts)


def _has_stopped(facts: PodFacts) -> bool:
    """Return True if nothing of the pod runs.

    The runtime must show this in a query that began after the last change. A pod that was never assigned to a runtime
    has stopped, too.
    """
    if any(key in ("bind", "sandbox") or key.startswith("unit/") for key in facts.in_flight):
        return False
    if facts.runtime is None:
        return True
    seen = facts.snapshot
    if seen is None or facts.outage is not None:
        return False
    if any(
        moment is not None and seen.looked_at < moment for moment in (facts.unsettled_until, facts.changed_at)
    ):
        return False
    return all(_ended_as_told(facts, seen, unit) for unit in seen.units)


def _ended_as_told(facts: PodFacts, seen: PodSnapshot, unit: UnitSummary) -> bool:
    """Return True if the unit does not run, and its exit code is known if it is the newest of its container."""
    if unit.state.is_alive or unit.state is UnitState.UNKNOWN:
        return False
    if unit.state is not UnitState.EXITED or facts.newest(unit.name) is not unit:
        return True
    status = seen.status_of(unit.id)
    return status is not None and status.exit_code is not None


def _unready(statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    return tuple(replace(s, ready=False) if s.ready else s for s in statuses)


# --- addresses -----------------------------------------------------------------------------------------


def _pod_ips(pod: Pod, facts: PodFacts, node: NodeIdentity) -> tuple[str, ...]:
    """Return the pod's addresses, at most one per IP family, the node's primary family first.

    They are kept after the sandbox has stopped (docs/kubelet-parity.md, row ST10).
    """
    previous = facts.previous_status
    if pod.spec.host_network:
        return node.host_ips if _is_placed(facts) else ()
    seen = facts.snapshot.sandbox_status if facts.snapshot is not None else None
    if seen is not None and seen.ips:
        return _one_per_family(seen.ips, node.host_ips)
    if previous is None or (has_ready_sandbox(facts) and seen is not None):
        return ()
    return tuple(ip.ip for ip in previous.pod_ips)


def _whole(pod: Pod, facts: PodFacts) -> ResourceRequirements:
    """Return the pod's total granted resources: the pod-level ones, else the sums over its containers.

    The API has these fields since Kubernetes 1.36.
    """
    spec = granted_pod(pod, facts).spec
    return ResourceRequirements(
        requests={name: str(amount) for name, amount in effective_requests(spec).items()},
        limits={name: str(amount) for name, amount in enforceable_limits(spec).items()},
    )


def _is_placed(facts: PodFacts) -> bool:
    return facts.runtime is not None and facts.rejection is None


def _one_per_family(ips: tuple[str, ...], host_ips: tuple[str, ...]) -> tuple[str, ...]:
    first = _version(host_ips[0]) if host_ips else 4
    by_family: dict[int, str] = {}
    for ip in ips:
        version = _version(ip)
        if version is not None:
            by_family.setdefault(version, ip)
    return tuple(by_family[v] for v in sorted(by_family, key=lambda v: v != first))


@lru_cache(maxsize=1024)
def _version(ip: str) -> int | None:
    try:
        return ipaddress.ip_address(ip).version
    except ValueError:
        return None
