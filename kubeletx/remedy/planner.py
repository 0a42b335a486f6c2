"""Decisions for each node now, and the reasons that hold them back. Pure: the controller and ``kubeletx remedy plan`` both use it.

A node is sick while a threshold's condition holds; its flow follows the courses of the first threshold that was due, and records
all that match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from .automaton import advance, begin, begin_recovery
from .config import Configurations, NodeCourses
from .decisions import Change, Decision, FlowFacts, Stay
from .model import FlowStatus, FlowStep, KernelDump, NodeFence, NodeView
from .policy import NOTE, ClusterPolicy, PolicyView, is_busy, starts

CONFIRMED = "remedy.kubeletx.io/confirmed-healthy"
"""Annotation of a NodeFence with the UID of the node that a person confirms."""


class ProblemEvents(msgspec.Struct, frozen=True):
    """Events about nodes: times of each (node, reason), oldest first."""

    times: Mapping[tuple[str, str], Iterable[datetime]] = {}


class FlowTimes(msgspec.Struct, frozen=True):
    """Measured times of a node's flow, in seconds; see `FlowFacts`."""

    waited: float = 0.0
    quiet: float = 0.0


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment. `now`: wall time of the cluster. `times`: of each node's flow. `policy`: see `policy`. `dumps`: of nodes."""

    now: datetime
    nodes: Mapping[str, NodeView]
    fences: Mapping[str, NodeFence] = {}
    times: Mapping[str, FlowTimes] = {}
    events: ProblemEvents = ProblemEvents()
    policy: PolicyView = PolicyView()
    dumps: Mapping[str, KernelDump] = {}


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Decision about one node, with what it follows from."""

    node: NodeView
    fence: NodeFence | None
    facts: FlowFacts
    decision: Decision


class Sickness(msgspec.Struct, frozen=True):
    """A threshold that matches. `is_due`: it has matched for its period; `left`: seconds until then.

    `is_untimed`: the condition does not say since when, or names a time in the future: only the flow's own time counts.
    """

    courses: NodeCourses
    reason: str
    is_due: bool
    left: float
    is_untimed: bool = False


def sickness_of(
    node: NodeView,
    configured: Configurations,
    now: datetime,
    events: ProblemEvents,
    fence: NodeFence | None = None,
) -> list[Sickness]:
    """Return the thresholds that match the node now. `fence`: its record; events before its last remedy do not count again."""
    since = _counted_since(node, fence)
    return [
        found
        for courses in configured.courses(node)
        if (found := _match(node, courses, now, events, since)) is not None
    ]


def has_recovered(node: NodeView, configured: Configurations, now: datetime) -> bool:
    """Return True if a threshold of the node has ceased to match within the setting `cooldown`.

    This is read from the conditions, so that it also holds for a controller that has just begun to lead.
    """
    cooldown = timedelta(seconds=configured.settings.cooldown)
    made = node.metadata.creation_timestamp
    for courses in configured.courses(node):
        condition = node.condition(courses.threshold.condition)
        since = condition.last_transition_time if condition is not None else None
        if condition is None or since is None or condition.status in courses.threshold.statuses:
            continue
        has_just_joined = made is not None and since <= made + cooldown
        if since > now - cooldown and not has_just_joined:
            return True
    return False


def _plan(name: str, view: ClusterView, configured: Configurations, policy: ClusterPolicy) -> FlowPlan | None:
    node, fence = view.nodes.get(name), view.fences.get(name)
    if node is None:
        return None
    times = view.times.get(name, FlowTimes())
    found = sickness_of(node, configured, view.now, view.events, fence)
    sick = [_as_seen(item, name, fence, times, view.policy) for item in found]
    is_over = fence is None or fence.is_over
    is_left = is_over and not sick and bool(node.metadata.annotations.get(NOTE))
    if fence is None and not sick and not is_left:
        return None
    if fence is not None and sick:
        fence = _unconfirmed(fence)
    taken = _overtaking(node, fence, sick, configured)
    courses = taken or _courses(node, fence, sick, configured)
    facts = FlowFacts(
        node=node,
        courses=courses.courses if courses is not None else (),
        settings=configured.settings,
        reasons=tuple(item.reason for item in sick),
        is_due=any(item.is_due for item in sick),
        waited=times.waited,
        quiet=times.quiet,
        holds=policy.holds(node),
        pauses=(*policy.pauses(node, fence), *_lost(node, fence, configured)),
        dump=view.dumps.get(name, KernelDump()),
        is_confirmed=fence is not None and fence.metadata.annotations.get(CONFIRMED) == node.metadata.uid,
    )
    if is_left and not facts.pauses:
        decision: Decision = begin_recovery(node, fence)
    elif fence is None or (fence.is_over and sick) or taken is not None:
        decision = Stay(facts.pauses)
        if courses is not None and not facts.pauses:
            decision = begin(name, facts, courses.configuration, courses.threshold.name, fence)
    else:
        decision = advance(fence, facts)
    return FlowPlan(node=node, fence=fence, facts=facts, decision=decision)


def plan_all(
    view: ClusterView, configured: Configurations, names: Iterable[str] | None = None
) -> Iterator[FlowPlan]:
    """Yield the decision about each node that is sick or has a record, or about these. Each one counts what the others begin."""
    policy = ClusterPolicy(view.nodes, view.fences, configured.settings, view.policy, view.now)
    for name in sorted({*view.nodes, *view.fences} if names is None else names):
        plan = _plan(name, view, configured, policy)
        if plan is None:
            continue
        if isinstance(plan.decision, Change) and starts(plan.fence, plan.decision.fence):
            policy.start(name)
        yield plan


def _as_seen(
    item: Sickness, name: str, fence: NodeFence | None, times: FlowTimes, policy: PolicyView
) -> Sickness:
    """Return the threshold as due only if controllers have seen its condition for the period: a wall clock may be wrong."""
    threshold = item.courses.threshold
    if threshold.event or (policy.seen is None and not item.is_untimed):
        return item
    seen = (policy.seen or {}).get((name, threshold.condition), 0.0)
    if fence is not None and fence.flow.status == FlowStatus.NEW.value and item.reason in fence.flow.reasons:
        seen = max(seen, times.waited)
    left = max(threshold.period - seen, 0.0 if item.is_untimed else item.left)
    return replace(item, left=left, is_due=left <= 0)


def _unconfirmed(fence: NodeFence) -> NodeFence:
    """Return the record without a confirmation that the node is well: it is sick, so a later recovery needs another one."""
    kept = {name: value for name, value in fence.metadata.annotations.items() if name != CONFIRMED}
    return replace(fence, metadata=replace(fence.metadata, annotations=kept))


def _lost(node: NodeView, fence: NodeFence | None, configured: Configurations) -> list[str]:
    """Return why the flow cannot go on: the threshold that it follows is no longer configured."""
    if (
        fence is None
        or fence.is_over
        or fence.flow.stopped
        or not is_busy(fence)
        or not fence.flow.configuration
    ):
        return []
    place = (fence.flow.configuration, fence.flow.threshold)
    if any((courses.configuration, courses.threshold.name) == place for courses in configured.courses(node)):
        return []
    found = f"configuration {place[0]!r} has no threshold {place[1]} for the node any more"
    return [f"{found}; write it back, or stop the flow (kubeletx remedy stop {node.name})"]


def _courses(
    node: NodeView, fence: NodeFence | None, sick: list[Sickness], configured: Configurations
) -> NodeCourses | None:
    """Return the courses of the node's flow: the ones it began with, or of the first threshold that is due."""
    if fence is not None and not fence.is_over:
        for courses in configured.courses(node):
            if (courses.configuration, courses.threshold.name) == (
                fence.flow.configuration,
                fence.flow.threshold,
            ):
                return courses
    first = min(sick, key=lambda item: item.left, default=None)
    return first.courses if first is not None else None


def _overtaking(
    node: NodeView, fence: NodeFence | None, sick: list[Sickness], configured: Configurations
) -> NodeCourses | None:
    """Return the courses of a lost node that is under way for a lesser reason, such as a full disk; None: go on as before.

    A due threshold of Ready takes over the flow of another condition, between two methods. A flow that has proven or released
    something goes on, and so does a flow whose own recovery the other threshold does not have: else nothing would undo it.
    """
    if (
        fence is None
        or fence.is_over
        or fence.problem
        or fence.flow.stopped
        or fence.flow.operation is not None
    ):
        return None
    if fence.flow.proofs or fence.flow.released:
        return None
    present = _courses(node, fence, sick, configured)
    if present is None or present.threshold.condition == "Ready":
        return None
    undone_by = _recovery_of(present)
    due = (item.courses for item in sick if item.is_due and item.courses.threshold.condition == "Ready")
    return next((courses for courses in due if undone_by <= _recovery_of(courses)), None)


def _recovery_of(courses: NodeCourses) -> set[str]:
    """Return the names of the recovery methods that every flow does not have by itself."""
    methods = [method for course in courses.courses for method in course.recovery]
    return {method.name for method in methods if method.kind != "builtin"}


def _counted_since(node: NodeView, fence: NodeFence | None) -> datetime | None:
    """Return the time after which events count: the end of the last remedy, or the creation of the Node."""
    if fence is not None and not fence.problem and fence.flow.node_uid == node.metadata.uid:
        is_treated = fence.present_status in (FlowStatus.DONE, FlowStatus.FINAL)
        if is_treated or fence.present_step is FlowStep.RECOVERY:
            return fence.flow.since
    return node.metadata.creation_timestamp


def _match(
    node: NodeView, courses: NodeCourses, now: datetime, events: ProblemEvents, since: datetime | None
) -> Sickness | None:
    threshold = courses.threshold
    if threshold.event:
        times = [
            at
            for at in events.times.get((node.name, threshold.event), ())
            if 0 <= (now - at).total_seconds() <= threshold.period and (since is None or at > since)
        ]
        if len(times) < threshold.count:
            return None
        return Sickness(courses, f"{len(times)} events {threshold.event}", is_due=True, left=0.0)
    condition = node.condition(threshold.condition)
    if condition is None or condition.status not in threshold.statuses:
        return None
    changed = condition.last_transition_time
    age = (now - changed).total_seconds() if changed is not None else 0.0
    left = max(0.0, threshold.period - age)
    reason = f"{condition.type}={condition.status}"
    return Sickness(courses, reason, is_due=left <= 0, left=left, is_untimed=changed is None or changed > now)
