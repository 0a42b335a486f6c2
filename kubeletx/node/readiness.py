"""Computes the node's conditions from the states of its runtimes. Pure.

    MemoryPressure, DiskPressure, PIDPressure    the kubelet's reasons
    RuntimesReady                                True only when every runtime is ready
    kubeletx.io/RuntimeReady-<name>              one for each runtime, in their order
    kubeletx.io/Healthy-<name>                   one for each health check of a plugin
    kubeletx.io/EdgeHealthy and others           the guardian's, on an edge node
    Ready                                        by policy; always the last in the list, as in the kubelet

Policies for Ready (DECISIONS 6). `partial`: at least one runtime must be ready. `all`: every uncordoned runtime must
be ready. `primary`: the first configured runtime must be ready. A runtime is ready when it reports both RuntimeReady
and NetworkReady. A node without runtimes is not ready. The message of Ready names the workload types that have no
ready runtime, whether Ready is True or False.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from kubeletx.api import RuntimeVersion, Traits, names
from kubeletx.kube.types.node import NodeCondition
from kubeletx.runtimes.handles.health import RuntimeState

HEALTH_CONDITION_PREFIX = "kubeletx.io/Healthy-"
READY = "Ready"
NEVER_ASKED = "NotConnected"
NOT_CHECKED = "NotCheckedYet"
"""Reason of the condition of a health check that has no result yet."""


class Policy(enum.Enum):
    """Value of ``--node-readiness-policy``: which runtimes must be ready for the node to be Ready."""

    PARTIAL = "partial"
    ALL = "all"
    PRIMARY = "primary"


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime, as input of the node's conditions and of the Node object.

    `version` and `traits`: None until the runtime has answered once.
    """

    name: str
    workload_type: str
    state: RuntimeState
    version: RuntimeVersion | None = None
    traits: Traits | None = None

    @property
    def is_ready(self) -> bool:
        return self.state.is_ready

    @property
    def trouble(self) -> str:
        """One line for messages: the runtime's name, and the reason why it is not ready."""
        why = ": ".join(text for text in (self.state.reason, self.state.message) if text)
        return f"{self.name}: {why or 'not ready'}"


class CheckFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a plugin's health check `name`, with the fields of the node condition that shows it."""

    name: str
    status: str
    reason: str
    message: str = ""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Resources under eviction pressure: the node's conditions MemoryPressure, DiskPressure and PIDPressure."""

    memory: bool = False
    disk: bool = False
    pids: bool = False


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of `node_conditions`. `runtimes`: in configured order; the first is the primary one.

    `missing_resources`: see `capacity.missing_resources`. `problems`: texts of further reasons why Ready is False.
    `checks`: results of the plugins' health checks. `others`: further conditions, without their times.
    """

    runtimes: tuple[RuntimeFacts, ...] = ()
    policy: Policy = Policy.PARTIAL
    pressure: Pressure = Pressure()
    missing_resources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: tuple[CheckFacts, ...] = ()
    others: tuple[NodeCondition, ...] = ()


def is_enough(runtimes: Sequence[RuntimeFacts], policy: Policy) -> bool:
    """Return True if the runtimes that the policy requires are ready."""
    match policy:
        case Policy.PRIMARY:
            return bool(runtimes) and runtimes[0].is_ready
        case Policy.ALL:
            wanted = [runtime for runtime in runtimes if not runtime.state.cordoned]
            return any(r.is_ready for r in runtimes) and all(r.is_ready for r in wanted)
    return any(runtime.is_ready for runtime in runtimes)


def types_without_runtime(runtimes: Iterable[RuntimeFacts]) -> tuple[str, ...]:
    """Return the workload types without a ready runtime, in the order of `runtimes`."""
    runtimes = tuple(runtimes)
    types = dict.fromkeys(runtime.workload_type for runtime in runtimes)
    served = {runtime.workload_type for runtime in runtimes if runtime.is_ready}
    return tuple(type_ for type_ in types if type_ not in served)


def node_conditions(
    facts: NodeFacts, *, previous: Sequence[NodeCondition] = (), now: datetime
) -> tuple[NodeCondition, ...]:
    """Compute the node's conditions.

    A condition whose status is the same as in `previous` keeps its last transition time; other conditions get `now`.
    """
    conditions = (
        *_pressures(facts.pressure),
        _runtimes_ready(facts.runtimes),
        *(_runtime_ready(runtime) for runtime in facts.runtimes),
        *(_healthy(check) for check in facts.checks),
        *facts.others,
        _ready(facts),
    )
    before = {condition.type: condition for condition in previous}
    return tuple(_timed(condition, before.get(condition.type), now) for condition in conditions)


def with_times(
    conditions: Sequence[NodeCondition], known: Mapping[str, tuple[str, datetime]]
) -> tuple[NodeCondition, ...]:
    """Return `conditions` with the transition times of `known`.

    `known`: status and transition time, by condition type. A condition that is missing there or has another status
    there is unchanged.
    """
    return tuple(
        msgspec.structs.replace(condition, last_transition_time=known[condition.type][1])
        if condition.type in known and known[condition.type][0] == condition.status
        else condition
        for condition in conditions
    )


def runtime_condition_type(name: str) -> str:
    """Return the type of the node condition that shows the readiness of the runtime called `name`."""
    return names.RUNTIME_CONDITION_PREFIX + name


def _ready(facts: NodeFacts) -> NodeCondition:
    uncovered = types_without_runtime(facts.runtimes)
    note = f"no ready runtime for workload type {', '.join(uncovered)}" if uncovered else ""
    troubles = [runtime.trouble for runtime in facts.runtimes if not runtime.is_ready]
    errors: list[str] = []
    if not facts.runtimes:
        errors.append("no container runtime is configured")
    elif not is_enough(facts.runtimes, facts.policy):
        errors.append(f"container runtime is not ready (policy {facts.policy.value})")
    if facts.missing_resources:
        errors.append(f"missing node capacity for resources: {', '.join(facts.missing_resources)}")
    errors += facts.problems
    if errors:
        message = "; ".join(text for text in (*errors, note, *troubles) if text)
        return NodeCondition(type=READY, status="False", reason="KubeletNotReady", message=message)
    message = "; ".join(text for text in ("kubelet is posting ready status", note) if text)
    if uncovered:
        concerned = [runtime.trouble for runtime in facts.runtimes if runtime.workload_type in uncovered]
        message += f" ({'; '.join(concerned)})"
    return NodeCondition(type=READY, status="True", reason="KubeletReady", message=message)


def _runtimes_ready(runtimes: Sequence[RuntimeFacts]) -> NodeCondition:
    troubles = [runtime.trouble for runtime in runtimes if not runtime.is_ready]
    if not runtimes:
        reason, message = "NoRuntimes", "no runtime is configured"
    elif troubles:
        reason = "RuntimesNotReady"
        message = f"{len(troubles)} of {len(runtimes)} are not ready: {'; '.join(troubles)}"
    else:
        reason, message = "AllRuntimesReady", f"{len(runtimes)} of {len(runtimes)} are ready"
    ready = bool(runtimes) and not troubles
    return NodeCondition(
        type=names.RUNTIMES_READY, status="True" if ready else "False", reason=reason, message=message
    )


def _runtime_ready(runtime: RuntimeFacts) -> NodeCondition:
    state = runtime.state
    if runtime.is_ready:
        status, reason, message = "True", "RuntimeReady", f"workload type {runtime.workload_type}"
    else:
        status = "Unknown" if state.reason == NEVER_ASKED else "False"
        reason, message = state.reason or "RuntimeNotReady", state.message
    if state.cordoned:
        message = "; ".join(text for text in (message, "cordoned") if text)
    return NodeCondition(
        type=runtime_condition_type(runtime.name), status=status, reason=reason, message=message
    )


def _healthy(check: CheckFacts) -> NodeCondition:
    return NodeCondition(
        type=HEALTH_CONDITION_PREFIX + check.name,
        status=check.status,
        reason=check.reason,
        message=check.message,
    )


def _pressures(pressure: Pressure) -> tuple[NodeCondition, ...]:
    memory, disk, pids = pressure.memory, pressure.disk, pressure.pids
    return (
        _pressure("MemoryPressure", memory, "InsufficientMemory" if memory else "SufficientMemory"),
        _pressure("DiskPressure", disk, "DiskPressure" if disk else "NoDiskPressure"),
        _pressure("PIDPressure", pids, "InsufficientPID" if pids else "SufficientPID"),
    )


_PRESSURE_MESSAGES = {
    "InsufficientMemory": "kubelet has insufficient memory available",
    "SufficientMemory": "kubelet has sufficient memory available",
    "DiskPressure": "kubelet has disk pressure",
    "NoDiskPressure": "kubelet has no disk pressure",
    "InsufficientPID": "kubelet has insufficient PID available",
    "SufficientPID": "kubelet has sufficient PID available",
}


def _pressure(type_: str, pressed: bool, word: str) -> NodeCondition:
    return NodeCondition(
        type=type_,
        status="True" if pressed else "False",
        reason=f"KubeletHas{word}",
        message=_PRESSURE_MESSAGES[word],
    )


def _timed(condition: NodeCondition, before: NodeCondition | None, now: datetime) -> NodeCondition:
    same = before is not None and before.status == condition.status
    changed = before.last_transition_time if before is not None and same else now
    return msgspec.structs.replace(condition, last_heartbeat_time=now, last_transition_time=changed)
