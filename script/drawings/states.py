"""Sections of docs/states.md. Each function calls pure functions of the host with every state and cause."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import FunctionType
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kubeletx.api import (
    PodUid,
    RuntimeHealth,
    RuntimeName,
    SandboxId,
    SandboxState,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.fornax.node_machine import TRANSITIONS as NODE_TRANSITIONS
from kubeletx.fornax.node_machine import NodeMachine, NodeState
from kubeletx.fornax.pods import machine as fornax
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodSpec,
)
from kubeletx.node.readiness import NodeFacts, Policy, RuntimeFacts, node_conditions
from kubeletx.pods.model.draft import Goal
from kubeletx.pods.model.facts import Deletion, DesiredPod, Now, PodFacts, Rejection
from kubeletx.pods.model.phase import FINAL, phase_of
from kubeletx.pods.plan.pod import goal_of
from kubeletx.pods.status.build import NodeIdentity, build_status
from kubeletx.pods.steps import dispatch
from kubeletx.runtimes.handles.health import Health, RuntimeState, Silence, step
from kubeletx.runtimes.handles.snapshots import PodSnapshot
from kubeletx.sessions.model import TABLE, SessionState

from .text import Edge, drawing, table, yes

WALL: Final = datetime(2030, 1, 1, tzinfo=UTC)
UID: Final = PodUid("u1")
POLICIES: Final = ("Always", "OnFailure", "Never")


# --- pods -------------------------------------------------------------------------------------------


class Life(NamedTuple):
    """State of a pod with one init container and one container.

    `init`: the init container's last exit code; None: it has not ended. `main`: state of the container.
    """

    init: int | None
    main: str
    """new, running, or the exit code."""


def phases() -> str:
    """Drawing of a pod's phases, by what its containers do."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for policy in POLICIES:
        for life, cause, later in _lives(policy):
            key = (_phase(life, policy), cause, _phase(later, policy))
            found.setdefault(key, set()).add(policy)
    edges = []
    for (before, cause, after), policies in found.items():
        only = "" if policies == set(POLICIES) else f" ({' or '.join(sorted(policies))})"
        edges.append(Edge(before, f"{cause}{only}", after))
    return drawing("Pending", edges, FINAL)


def _lives(policy: str) -> Iterator[tuple[Life, str, Life]]:
    """Yield every change (before, cause, after) in the life of such a pod until its phase is final."""
    todo, known = [Life(None, "new")], set()
    while todo:
        life = todo.pop()
        if life in known or _phase(life, policy) in FINAL:
            continue
        known.add(life)
        if life.init != 0:
            changes = [(f"the init container exits {word}", Life(code, "new")) for code, word in _CODES]
        elif life.main == "running":
            changes = [(f"the container exits {word}", Life(0, str(code))) for code, word in _CODES]
        else:
            changes = [("the container starts", Life(0, "running"))]
        for cause, after in changes:
            yield life, cause, after
            todo.append(after)


_CODES: Final = ((0, "with 0"), (1, "with an error"))


def _phase(life: Life, policy: str) -> str:
    state = {
        "new": ContainerState(waiting=ContainerStateWaiting()),
        "running": ContainerState(running=ContainerStateRunning()),
    }.get(life.main) or ContainerState(terminated=ContainerStateTerminated(exit_code=int(life.main)))
    statuses = [
        ContainerStatus(name="main", image="i", ready=False, restart_count=0, image_id="", state=state)
    ]
    if life.init is not None:
        ended = ContainerState(terminated=ContainerStateTerminated(exit_code=life.init))
        statuses.append(
            ContainerStatus(name="init", image="i", ready=False, restart_count=0, image_id="", state=ended)
        )
    return phase_of(_pod(policy), statuses)


def goals() -> str:
    """Drawing of the goals of a plan."""
    ended = PodFacts(snapshot=_snapshot(UnitState.EXITED), runtime=RuntimeName("r"))
    refused = PodFacts(rejection=Rejection(reason="", message=""))
    gone, evicted = (Deletion(requested_at=0, grace_seconds=0, reason=reason) for reason in ("", "Evicted"))
    causes: Mapping[str, tuple[PodFacts | None, Deletion | None]] = {
        "every container ended for good": (ended, None),
        "the node refuses it": (refused, None),
        "the node ends it (eviction, deadline)": (None, evicted),
        "its source deletes it": (None, gone),
    }
    edges = []
    for facts in (PodFacts(), ended):
        before = goal_of(_desired(None), facts)
        for cause, (more, deletion) in causes.items():
            after = goal_of(_desired(deletion), more or facts)
            edges.append(Edge(before.name, cause, after.name))
    return drawing(Goal.RUN.name, edges, [Goal.DELETE.name])


def units() -> str:
    """Table of the states of a unit, and what the status of its container shows."""
    rows = []
    for state in UnitState:
        facts = PodFacts(runtime=RuntimeName("r"), admitted=True, snapshot=_snapshot(state))
        status = build_status(_desired(None), facts, Now(wall=WALL, mono=0), NodeIdentity(name="n"))
        shown = status.container_statuses[0].state
        name = next(name for name in shown.__struct_fields__ if getattr(shown, name) is not None)
        reason = getattr(getattr(shown, name), "reason", None)
        rows.append([f"`{state.name}`", yes(state.is_alive), f"{name} ({reason})" if reason else name])
    return table(["unit", "alive", "state of the container"], rows)


def actions() -> str:
    """Table of all actions of a plan."""
    rows = []
    for kind, row in dispatch.ROWS.items():
        failure = type(row.failure(_Anything(), "", "")).__name__
        rows.append(
            [f"`{kind.__name__}`", kind.subject, yes(kind.cancellable), _step(row.step), f"`{failure}`"]
        )
    return table(
        ["action", "changes", "a deletion or an exit of the agent cancels it", "step", "result after a bug"],
        rows,
    )


class _Anything:
    """An action whose fields do not matter: every attribute is empty."""

    def __getattr__(self, name: str) -> Any:
        return _Anything() if name == "nic" else ""


def _step(function: Any) -> str:
    """Path of the file with the action's step, below kubeletx/pods."""
    assert isinstance(function, FunctionType)
    if function.__name__ == "<lambda>":  # it leaves out what the step does not need
        function = function.__globals__[function.__code__.co_names[0]]
    return f"`{function.__module__.removeprefix('kubeletx.pods.').replace('.', '/')}.py`"


def _pod(policy: str = "Never") -> Pod:
    main, init = (Container(name=name, image="i") for name in ("main", "init"))
    spec = PodSpec(containers=(main,), init_containers=(init,), restart_policy=policy)
    return Pod(metadata=ObjectMeta(name="p", namespace="default", uid=UID), spec=spec)


def _desired(deletion: Deletion | None) -> DesiredPod:
    pod = _pod()
    pod = replace(pod, spec=replace(pod.spec, init_containers=()))
    return DesiredPod(uid=UID, pod=pod, source="file", spec_hash="", deletion=deletion)


def _snapshot(state: UnitState) -> PodSnapshot:
    sandbox = SandboxSummary(
        id=SandboxId("s1"),
        uid=UID,
        name="p",
        namespace="default",
        attempt=0,
        state=SandboxState.READY,
        created_at_ns=1,
    )
    unit = UnitSummary(
        id=UnitId("c1"), sandbox_id=sandbox.id, uid=UID, name="main", attempt=0, state=state, created_at_ns=1
    )
    status = UnitStatus(summary=unit, started_at_ns=1, exit_code=0)
    return PodSnapshot(
        uid=UID, sandboxes=(sandbox,), units=(unit,), statuses={unit.id: status}, looked_at=0.0
    )


def fornax_pods() -> str:
    """Drawing of the states of a pod of a FornaxCore."""
    edges = [
        Edge(state.value, cause.value, after.value)
        for state, rows in fornax.TABLE.items()
        for cause, after in rows
        if cause is not fornax.PodCause.GONE or state is fornax.PodState.TERMINATING
    ]
    return drawing(fornax.PodState.CREATING.value, edges, [fornax.PodState.TERMINATED.value])


def sessions() -> str:
    """Drawing of the states of a session."""
    edges = [Edge(before.value, cause.value, after.value) for (before, cause), after in TABLE.items()]
    return drawing(SessionState.STARTING.value, edges, [SessionState.TERMINATED.value])


# --- runtimes and the node --------------------------------------------------------------------------

GRACE_SECONDS: Final = 10.0


def health() -> str:
    """Drawing of a runtime's health, by the answers to its probes."""
    outcomes: Mapping[str, tuple[RuntimeHealth | Silence, float]] = {
        "reports ready": (RuntimeHealth(runtime_ready=True, network_ready=True), 1),
        "reports its network not ready": (RuntimeHealth(runtime_ready=True, network_ready=False), 1),
        "reports not ready": (RuntimeHealth(runtime_ready=False, network_ready=False), 1),
        "one probe fails": (Silence(reason="Timeout", message=""), 1),
        f"no answer for {GRACE_SECONDS:g} s": (Silence(reason="Timeout", message=""), GRACE_SECONDS),
    }
    first = Health(state=RuntimeState(since=WALL))
    todo, edges, known = [(first, 0.0)], [], set()
    while todo:
        before, mono = todo.pop(0)
        if (name := _health_name(before)) in known:
            continue
        known.add(name)
        for cause, (outcome, seconds) in outcomes.items():
            after = step(before, outcome, wall=WALL, mono=mono + seconds, grace_seconds=GRACE_SECONDS)
            if _health_name(after) != name:
                edges.append(Edge(name, cause, _health_name(after)))
                todo.append((after, mono + seconds))
    return drawing(_health_name(first), edges)


def _health_name(health: Health) -> str:
    if not health.state.reachable:
        return "NotConnected" if health.state.reason == "NotConnected" else "Unreachable"
    return "Ready" if health.state.is_ready else "NotReady"


def readiness() -> str:
    """Table of the conditions of a node with two runtimes, by policy."""
    rows = []
    for states in itertools.product(("ready", "not ready", "cordoned, not ready"), repeat=2):
        runtimes = tuple(
            RuntimeFacts(name=name, workload_type="container", state=_runtime_state(text))
            for name, text in zip(("first", "second"), states, strict=True)
        )
        cells = list(states)
        for policy in Policy:
            conditions = node_conditions(NodeFacts(runtimes=runtimes, policy=policy), now=WALL)
            cells.append(next(condition.status for condition in conditions if condition.type == "Ready"))
        cells.append(next(condition.status for condition in conditions if condition.type == "RuntimesReady"))
        rows.append(cells)
    head = [
        "first runtime",
        "second runtime",
        *(f"Ready (`{policy.value}`)" for policy in Policy),
        "RuntimesReady",
    ]
    return table(head, rows)


def _runtime_state(text: str) -> RuntimeState:
    ready = text == "ready"
    return RuntimeState(
        ready=ready, network_ready=ready, reachable=True, cordoned="cordoned" in text, since=WALL
    )


def fornax_node() -> str:
    """Drawing of the states of a node under its cores."""
    edges = [
        Edge(before.value, event.value, after.value) for (before, event), after in NODE_TRANSITIONS.items()
    ]
    return drawing(NodeMachine().state.value, edges, [NodeState.STOPPED.value])
