"""Builds the pod conditions of the pod's status (docs/kubelet-parity.md, rows ST2 and ST3).

The agent writes, in this order: PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled, then
conditions that are present only if they apply to the pod, such as `kubeletx.io/RuntimeReachable`. Conditions of other
owners are kept unchanged. `lastTransitionTime` changes only when the condition's status changes. Source: kubelet,
status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from kubeletx.api import SandboxState, UnitState, names
from kubeletx.kube.types.core import ContainerStatus, Pod, PodCondition, PodStatus

from ..model.facts import DesiredPod, PodFacts
from ..model.frame import find_condition
from ..model.phase import FAILED, FINAL, PENDING, SUCCEEDED
from ..model.roles import init_units, is_sidecar, regular_units, sidecars
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
    """Build all conditions of the pod, including conditions of other owners.

    `statuses`: statuses of init and regular containers; empty if the pod was rejected. `now`: UTC.
    """
    previous = facts.previous_status
    reported = previous.conditions if previous is not None else ()
    before = {condition.type: condition for condition in reversed(reported)}
    foreign = tuple(_dated_disruption(condition, before, now) for condition in _foreign(desired, previous))
    containers_ready = _containers_ready(desired.pod, facts, phase, statuses)
    is_unseen = facts.recovered and facts.snapshot is None and facts.rejection is None
    resting = tuple(_stored(previous) if is_unseen else _units_running(facts))
    made = (
        _ready_to_start(desired, facts, previous),
        _initialized(desired.pod, phase, statuses),
        _pod_ready(desired.pod, foreign, containers_ready),
        containers_ready,
        PodCondition(type=names.POD_SCHEDULED, status=TRUE),
        *_runtime_reachable(desired, facts, previous, statuses),
        *resting,
        *_restarting_all(desired, facts, phase),
        *(() if is_unseen else _of_workload(desired, facts, containers_ready, resting, statuses)),
        *resize_conditions(desired, facts),
        *_manifest_valid(desired),
    )
    generation = desired.pod.metadata.generation
    return foreign + tuple(
        _dated(condition, before.get(condition.type), generation, now) for condition in made
    )


def _dated_disruption(
    condition: PodCondition, before: Mapping[str, PodCondition], now: datetime
) -> PodCondition:
    """If a DisruptionTarget condition has no transition time, set it; return all other conditions unchanged."""
    if condition.type != names.DISRUPTION_TARGET or condition.last_transition_time is not None:
        return condition
    return _dated(condition, before.get(condition.type), None, now)


def _dated(
    condition: PodCondition, before: PodCondition | None, generation: int | None, now: datetime
) -> PodCondition:
    """Set the condition's transition time and generation. `before`: the previous condition of this type."""
    since = condition.last_transition_time or now
    if before is not None and before.status == condition.status and before.last_transition_time is not None:
        since = before.last_transition_time
    return replace(condition, last_transition_time=since, observed_generation=generation)


def _foreign(desired: DesiredPod, previous: PodStatus | None) -> Iterator[PodCondition]:
    """Yield the conditions that the agent does not own, from the pod object of its source.

    DisruptionTarget is added if this node ended the pod, or if the previous status had it.
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
    """Build the DisruptionTarget condition of a pod that the node ended; None for other pods.

    With this condition a Job's podFailurePolicy can ignore the failure. A pod that exceeded its own limit does not
    get it, since the Job would replace the pod again and again.
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
    """Build condition PodReadyToStartContainers: True while a usable sandbox with its network exists."""
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
    """Return True if the regular container runs or ever ran, which means that initialisation was finished."""
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
        *(c.name for c in sidecars(pod)),
        *(c.name for c in regular_units(pod)),
    ]
    unknown = [name for name in counted if name not in by_name]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=type, status=FALSE, reason=POD_COMPLETED)
    unready = [name for name in counted if name in by_name and not by_name[name].ready]
    message = _listed("unready", unknown, unready)
    if not message and phase == PENDING:
        message = "the pod is not running yet"  # for example, its sandbox is gone and its containers are about to end
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
        status_now = status.get(gate.condition_type)
        if status_now is None:
            closed.append(f'readiness gate "{gate.condition_type}" has no condition')
        elif status_now != TRUE:
            closed.append(f'readiness gate "{gate.condition_type}" is {status_now}')
    if closed:
        return PodCondition(
            type=names.POD_READY, status=FALSE, reason=GATES_NOT_READY, message=", ".join(closed)
        )
    return PodCondition(type=names.POD_READY, status=TRUE)


def _runtime_reachable(
    desired: DesiredPod, facts: PodFacts, previous: PodStatus | None, statuses: Sequence[ContainerStatus]
) -> Iterator[PodCondition]:
    """Yield condition RuntimeReachable: False during an outage of the runtime, True after it.

    A pod without any outage so far does not have this condition.
    """
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
    """Return True if the container waits for a restart: it ended after an earlier restart, or its probe failed."""
    if status.state.running is None:
        return bool(status.restart_count)
    probes, unit = facts.unit(status.name).probes, facts.newest(status.name)
    if probes is None or unit is None or probes.unit_id != unit.id:
        return False
    return False in (probes.startup, probes.liveness)


def _stored(previous: PodStatus | None) -> Iterator[PodCondition]:
    """Yield the stored conditions that depend on what the runtime shows; for a pod not seen since the agent started."""
    for condition in previous.conditions if previous is not None else ():
        if condition.type in (names.UNITS_RUNNING, *WORKLOAD_CONDITIONS):
            yield condition


def _units_running(facts: PodFacts) -> Iterator[PodCondition]:
    """Yield condition UnitsRunning, with status False, while a container or machine is paused, suspended or off.

    Container statuses have no such states.
    """
    resting = _resting(facts)
    if not resting or facts.snapshot is None:
        return
    states = {unit.state for unit in facts.snapshot.units if facts.newest(unit.name) is unit}
    reason = next((word for state, word in _RESTING if state in states), UNITS_OFF)
    yield PodCondition(type=names.UNITS_RUNNING, status=FALSE, reason=reason, message=resting)


def _restarting_all(desired: DesiredPod, facts: PodFacts, phase: str) -> Iterator[PodCondition]:
    """Yield condition AllContainersRestarting if a container of the pod has a rule with action RestartAllContainers."""
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
    desired: DesiredPod,
    facts: PodFacts,
    containers_ready: PodCondition,
    resting: Sequence[PodCondition],
    statuses: Sequence[ContainerStatus],
) -> Iterator[PodCondition]:
    """Yield the conditions that only pods of this kind of workload have, such as machines; nothing if it has none."""
    workload = workload_for(desired.pod, facts)
    yield from workload.conditions(
        desired, facts, containers_ready, resting[0] if resting else None, statuses
    )


def _resting(facts: PodFacts) -> str:
    if facts.snapshot is None:
        return ""
    reported, workload = [], workload_of(facts)
    for unit in facts.snapshot.units:
        if facts.newest(unit.name) is not unit:
            continue
        reported.append(workload.resting(facts, unit))
    return ", ".join(filter(None, reported))


def _manifest_valid(desired: DesiredPod) -> Iterator[PodCondition]:
    if desired.problem:
        yield PodCondition(
            type=names.MANIFEST_VALID, status=FALSE, reason=INVALID_MANIFEST, message=desired.problem
        )


def _listed(word: str, unknown: list[str], unmet: list[str]) -> str:
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: [{' '.join(unknown)}]")
    if unmet:
        parts.append(f"containers with {word} status: [{' '.join(unmet)}]")
    return ", ".join(parts)


def has_ready_sandbox(facts: PodFacts) -> bool:
    """Return True if the pod's newest sandbox was ready when last seen."""
    sandboxes = facts.snapshot.sandboxes if facts.snapshot is not None else ()
    return bool(sandboxes) and sandboxes[0].state is SandboxState.READY
