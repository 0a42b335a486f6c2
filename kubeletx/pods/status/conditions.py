"""Pod conditions (ST2, ST3): status, reason and message of each, and the time of its last change.

The agent's own, in the order of the list: PodReadyToStartContainers, Initialized, Ready, ContainersReady,
PodScheduled, then others that are present only if they apply to the pod (`kubeletx.io/...`). Conditions
of other owners are kept as they are. `lastTransitionTime` moves only when the condition's status changes.
Source: kubelet, status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from kubeletx.api import SandboxState, UnitState, names
from kubeletx.kube.types.core import ContainerStatus, Pod, PodCondition, PodStatus

from ..model.facts import DesiredPod, PodFacts
from ..model.phase import FAILED, FINAL, PENDING, SUCCEEDED
from ..model.roles import init_units, is_sidecar, regular_units
from ..plan.progress import newest
from ..plan.resize_container import IN_PROGRESS as RESIZE_IN_PROGRESS
from ..plan.resize_container import PENDING as RESIZE_PENDING
from ..plan.resize_container import resize_conditions
from ..plan.restart_all import has_rule, is_restarting
from ..plan.sandbox import SandboxNeed, sandbox_need
from ..workloads.table import WORKLOAD_CONDITIONS, workload_for, workload_of

TRUE, FALSE = "True", "False"
UNKNOWN_STATUSES = "UnknownContainerStatuses"
NOT_READY = "ContainersNotReady"
NOT_INITIALIZED = "ContainersNotInitialized"
GATES_NOT_READY = "ReadinessGatesNotReady"
POD_COMPLETED = "PodCompleted"
POD_FAILED = "PodFailed"
UNITS_PAUSED = "UnitsPaused"
UNITS_SUSPENDED = "UnitsSuspended"
UNITS_OFF = "UnitsOff"
_RESTING = ((UnitState.SUSPENDED, UNITS_SUSPENDED), (UnitState.PAUSED, UNITS_PAUSED))
PREEMPTED = "Pod was preempted by Kubelet to accommodate a critical pod."
INVALID_MANIFEST = "InvalidManifest"

OURS = frozenset(
    {
        names.POD_READY_TO_START,
        names.POD_INITIALIZED,
        names.POD_READY,
        names.CONTAINERS_READY,
        names.POD_SCHEDULED,
        names.RUNTIME_REACHABLE,
        names.UNITS_RUNNING,
        names.ALL_CONTAINERS_RESTARTING,
        *WORKLOAD_CONDITIONS,
        names.MANIFEST_VALID,
        RESIZE_PENDING,
        RESIZE_IN_PROGRESS,
    }
)


def build_conditions(
    desired: DesiredPod,
    facts: PodFacts,
    phase: str,
    statuses: Sequence[ContainerStatus],
    now: datetime,
) -> tuple[PodCondition, ...]:
    """All conditions of the pod. `statuses`: init and regular containers; empty if it was rejected."""
    previous = facts.previous_status
    foreign = tuple(_dated_disruption(one, previous, now) for one in _foreign(desired, previous))
    containers_ready = _containers_ready(desired.pod, facts, phase, statuses)
    made = (
        _ready_to_start(desired, facts, previous),
        _initialized(desired.pod, phase, statuses),
        _pod_ready(desired.pod, foreign, containers_ready),
        containers_ready,
        PodCondition(type=names.POD_SCHEDULED, status=TRUE),
        *_runtime_reachable(desired, facts, previous, statuses),
        *_units_running(facts),
        *_restarting_all(desired, facts, phase),
        *_of_workload(desired, facts, containers_ready, statuses),
        *resize_conditions(desired, facts),
        *_manifest_valid(desired),
    )
    generation = desired.pod.metadata.generation
    return foreign + tuple(_dated(condition, previous, generation, now) for condition in made)


def find_condition(status: PodStatus | None, type: str) -> PodCondition | None:
    """The condition of this type; None if the status has none."""
    if status is None:
        return None
    return next((c for c in status.conditions if c.type == type), None)


def _dated_disruption(condition: PodCondition, previous: PodStatus | None, now: datetime) -> PodCondition:
    """Set the transition time of a DisruptionTarget condition without one; return any other condition unchanged."""
    if condition.type != names.DISRUPTION_TARGET or condition.last_transition_time is not None:
        return condition
    return _dated(condition, previous, None, now)


def _dated(
    condition: PodCondition, previous: PodStatus | None, generation: int | None, now: datetime
) -> PodCondition:
    before = find_condition(previous, condition.type)
    since = condition.last_transition_time or now
    if before is not None and before.status == condition.status and before.last_transition_time is not None:
        since = before.last_transition_time
    return replace(condition, last_transition_time=since, observed_generation=generation)


def _foreign(desired: DesiredPod, previous: PodStatus | None) -> Iterator[PodCondition]:
    """Yield the conditions of other owners that the pod's source has.

    DisruptionTarget comes also from the previous status, or from this node if it ended the pod.
    """
    ended = _ended_by_node(desired)
    for condition in desired.pod.status.conditions:
        if condition.type not in OURS and (ended is None or condition.type != ended.type):
            yield condition
    disruption = find_condition(previous, names.DISRUPTION_TARGET)
    if ended is not None:
        yield ended if disruption is None or disruption.reason != ended.reason else disruption
    elif disruption is not None and find_condition(desired.pod.status, names.DISRUPTION_TARGET) is None:
        yield disruption


def _ended_by_node(desired: DesiredPod) -> PodCondition | None:
    """DisruptionTarget condition of a pod that the node ended, so that a podFailurePolicy may ignore the failure.

    None for other pods, and for one that exceeded its own limit: a Job would replace it again and again.
    """
    deletion = desired.deletion
    if deletion is None or deletion.over_own_limit:
        return None
    if deletion.reason not in (names.EVICTED, names.TERMINATED, names.PREEMPTING):
        return None
    is_preempted = deletion.reason == names.PREEMPTING
    return PodCondition(
        type=names.DISRUPTION_TARGET,
        status=TRUE,
        reason=names.TERMINATION_BY_KUBELET,
        message=PREEMPTED if is_preempted else deletion.message,
    )


def _ready_to_start(desired: DesiredPod, facts: PodFacts, previous: PodStatus | None) -> PodCondition:
    """PodReadyToStartContainers: True while a usable sandbox with its network exists."""
    type = names.POD_READY_TO_START
    if facts.waiting is not None:
        return PodCondition(
            type=type, status=FALSE, reason=facts.waiting.reason, message=facts.waiting.message
        )
    if facts.snapshot is None:
        before = find_condition(previous, type)
        return PodCondition(type=type, status=before.status if before is not None else FALSE)
    is_ready = sandbox_need(desired, facts) is SandboxNeed.READY
    failure = facts.sandbox_failure
    if is_ready or failure is None:
        return PodCondition(type=type, status=TRUE if is_ready else FALSE)
    return PodCondition(type=type, status=FALSE, reason=failure.reason, message=failure.message)


def _initialized(pod: Pod, phase: str, statuses: Sequence[ContainerStatus]) -> PodCondition:
    type = names.POD_INITIALIZED
    by_name = {status.name: status for status in statuses}
    init = init_units(pod)
    if not statuses and init:
        return PodCondition(type=type, status=FALSE, reason=UNKNOWN_STATUSES)
    unknown = [c.name for c in init if c.name not in by_name]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=type, status=TRUE, reason=POD_COMPLETED)
    if any(_has_started(by_name.get(c.name)) for c in regular_units(pod)):
        return PodCondition(type=type, status=TRUE)
    open_ = [
        c.name
        for c in init
        if c.name in by_name and not (by_name[c.name].started if is_sidecar(c) else by_name[c.name].ready)
    ]
    message = _listed("incomplete", unknown, open_)
    if message:
        return PodCondition(type=type, status=FALSE, reason=NOT_INITIALIZED, message=message)
    return PodCondition(type=type, status=TRUE)


def _has_started(status: ContainerStatus | None) -> bool:
    """Return True if the container runs or ever ran: then initialisation was finished."""
    return status is not None and (
        status.state.running is not None
        or status.state.terminated is not None
        or status.last_state.terminated is not None
    )


def _containers_ready(
    pod: Pod, facts: PodFacts, phase: str, statuses: Sequence[ContainerStatus]
) -> PodCondition:
    type = names.CONTAINERS_READY
    if phase == FAILED:
        return PodCondition(type=type, status=FALSE, reason=POD_FAILED)
    if not statuses:
        return PodCondition(type=type, status=FALSE, reason=UNKNOWN_STATUSES)
    by_name = {status.name: status for status in statuses}
    counted = [
        *(c.name for c in init_units(pod) if is_sidecar(c)),
        *(c.name for c in regular_units(pod)),
    ]
    unknown = [name for name in counted if name not in by_name]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=type, status=FALSE, reason=POD_COMPLETED)
    unready = [name for name in counted if name in by_name and not by_name[name].ready]
    message = _listed("unready", unknown, unready)
    if not message and phase == PENDING:
        message = "the pod is not running yet"  # its sandbox is gone, say, and its containers follow
    if not message:
        return PodCondition(type=type, status=TRUE)
    resting = _resting(facts)
    if resting:
        message = f"{message}; {resting}"
    return PodCondition(type=type, status=FALSE, reason=NOT_READY, message=message)


def _pod_ready(pod: Pod, conditions: Sequence[PodCondition], containers_ready: PodCondition) -> PodCondition:
    if containers_ready.status != TRUE:
        return replace(containers_ready, type=names.POD_READY)
    status = {condition.type: condition.status for condition in conditions}
    closed = []
    for gate in pod.spec.readiness_gates:
        found = status.get(gate.condition_type)
        if found is None:
            closed.append(f'readiness gate "{gate.condition_type}" has no condition')
        elif found != TRUE:
            closed.append(f'readiness gate "{gate.condition_type}" is {found}')
    if closed:
        return PodCondition(
            type=names.POD_READY, status=FALSE, reason=GATES_NOT_READY, message=", ".join(closed)
        )
    return PodCondition(type=names.POD_READY, status=TRUE)


def _runtime_reachable(
    desired: DesiredPod, facts: PodFacts, previous: PodStatus | None, statuses: Sequence[ContainerStatus]
) -> Iterator[PodCondition]:
    """Yield RuntimeReachable from the first outage on: False during an outage, True afterwards."""
    outage = facts.outage
    if outage is None:
        if find_condition(previous, names.RUNTIME_REACHABLE) is not None:
            yield PodCondition(type=names.RUNTIME_REACHABLE, status=TRUE)
        return
    waits = [f"restart of {s.name}" for s in statuses if _is_to_restart(s, facts)]
    if desired.deletion is not None:
        waits = ["deletion"]
    message = outage.message if not waits else f"{outage.message}; waiting for it: {', '.join(waits)}"
    yield PodCondition(
        type=names.RUNTIME_REACHABLE,
        status=FALSE,
        reason=outage.reason,
        message=message,
        last_transition_time=outage.since,
    )


def _is_to_restart(status: ContainerStatus, facts: PodFacts) -> bool:
    """Return True if the container ended after a start, or still runs after a failed probe."""
    if status.state.running is None:
        return bool(status.restart_count)
    probes, unit = facts.unit(status.name).probes, newest(facts, status.name)
    if probes is None or unit is None or probes.unit_id != unit.id:
        return False
    return False in (probes.startup, probes.liveness)


def _units_running(facts: PodFacts) -> Iterator[PodCondition]:
    """Yield UnitsRunning while a unit is paused or suspended: the API has no state for that."""
    resting = _resting(facts)
    if not resting or facts.snapshot is None:
        return
    states = {unit.state for unit in facts.snapshot.units if newest(facts, unit.name) is unit}
    reason = next((word for state, word in _RESTING if state in states), UNITS_OFF)
    yield PodCondition(type=names.UNITS_RUNNING, status=FALSE, reason=reason, message=resting)


def _restarting_all(desired: DesiredPod, facts: PodFacts, phase: str) -> Iterator[PodCondition]:
    """Yield AllContainersRestarting for pods with a rule that restarts all containers (L7)."""
    if not has_rule(desired):
        return
    type_ = names.ALL_CONTAINERS_RESTARTING
    if phase in FINAL:
        reason = POD_FAILED if phase == FAILED else POD_COMPLETED
        yield PodCondition(type=type_, status=FALSE, reason=reason)
    elif is_restarting(desired, facts):
        yield PodCondition(
            type=type_,
            status=TRUE,
            reason="RestartAllContainersStarted",
            message="container exited with restart policy rule",
        )
    else:
        yield PodCondition(type=type_, status=FALSE)


def _of_workload(
    desired: DesiredPod, facts: PodFacts, containers_ready: PodCondition, statuses: Sequence[ContainerStatus]
) -> Iterator[PodCondition]:
    """Yield the condition, if there is one, that only pods of this workload type have."""
    resting = next(_units_running(facts), None)
    found = workload_for(desired.pod, facts).condition(containers_ready, resting, statuses)
    if found is not None:
        yield found


def _resting(facts: PodFacts) -> str:
    if facts.snapshot is None:
        return ""
    told, workload = [], workload_of(facts)
    for unit in facts.snapshot.units:
        if newest(facts, unit.name) is not unit:
            continue
        told.append(workload.resting(facts, unit))
    return ", ".join(filter(None, told))


def _manifest_valid(desired: DesiredPod) -> Iterator[PodCondition]:
    if desired.problem:
        yield PodCondition(
            type=names.MANIFEST_VALID, status=FALSE, reason=INVALID_MANIFEST, message=desired.problem
        )


def _listed(word: str, unknown: list[str], found: list[str]) -> str:
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: [{' '.join(unknown)}]")
    if found:
        parts.append(f"containers with {word} status: [{' '.join(found)}]")
    return ", ".join(parts)


def has_ready_sandbox(facts: PodFacts) -> bool:
    """Return True if the newest sandbox was ready when last seen."""
    sandboxes = facts.snapshot.sandboxes if facts.snapshot is not None else ()
    return bool(sandboxes) and sandboxes[0].state is SandboxState.READY
