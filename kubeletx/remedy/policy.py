"""Rules for the nodes that may be treated now: storms, domains, control planes, other actors' nodes, excluded and paused nodes. Pure.

`holds` gives reasons for which no step may begin that takes more from the cluster: a flow that runs ends its step, and
recovery is never held. `pauses` gives reasons for which nothing at all is done.

Unhealthy nodes are those with a threshold that matches (even before its period ends), those that a flow has begun to treat, and
those that have become well within the last `cooldown` seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

import msgspec

from .model import FlowStatus, FlowStep, NodeFence, NodeView, RemedySettings

EXCLUDING: Final = ("remediation.medik8s.io/exclude-from-remediation", "remedy.kubeletx.io/exclude")
"""A node with one of these labels and the value ``true`` gets no treatment."""
FENCING: Final = "fencing"
"""Label of kube-fencing: a node sets ``enabled`` when it boots, and removes it when it shuts down as planned."""
PAUSE: Final = "remedy.kubeletx.io/pause"
"""Annotation of a NodeFence or a Node: nothing is done until it is removed. Its value says why. For all nodes: setting `pause`."""
NOTE: Final = "remedy.kubeletx.io/set"
"""Annotation of a Node: what the controller has set, separated by commas: cordon, and keys of taints."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_REMOVING: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
)
"""Taints of a node that an autoscaler removes."""
_PLANNED: Final = ("kubeletx.io/UpgradeTesting", "kubeletx.io/MaintenanceMode")
"""Conditions of a node whose agent is being upgraded or is in maintenance."""
_PLANNED_MARKS: Final = ("weave.works/kured-reboot-in-progress", "kubeletx.io/drained")
"""Annotations of a node that is rebooted or drained as planned."""


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """Facts for the policy beside nodes and records.

    `own_node`: where this controller runs. `sick`: names of sick nodes. `starting`: names of nodes whose step is being begun.
    `recent`: names of nodes that have become well within the cooldown. `problem`: why the view of the cluster cannot be trusted
    now; empty: it can. `doubts`: why no step may begin on any node, such as storage that the host cannot reach. `planned`:
    reason by node for which another actor reboots it. `seen`: seconds for which this controller has seen the present status of
    a (node, condition); None: only the conditions' own times count. `actors`: holder by node, of a node Lease that another actor holds.
    """

    own_node: str = ""
    sick: frozenset[str] = frozenset()
    starting: frozenset[str] = frozenset()
    recent: frozenset[str] = frozenset()
    problem: str = ""
    doubts: tuple[str, ...] = ()
    planned: Mapping[str, str] = {}
    actors: Mapping[str, str] = {}
    seen: Mapping[tuple[str, str], float] | None = None


class ClusterPolicy:
    """The rules over all nodes at one moment. `start` has to be called for each step that begins, so that the next node sees it."""

    def __init__(
        self,
        nodes: Mapping[str, NodeView],
        fences: Mapping[str, NodeFence],
        settings: RemedySettings,
        view: PolicyView,
        now: datetime,
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._view = view
        self._now = now
        self._busy = {name for name, fence in fences.items() if is_busy(fence)} | view.starting
        self._sick = set(view.sick | self._busy) & nodes.keys()
        self._has_label = settings.needs_fencing_label or any(
            FENCING in each.metadata.labels for each in nodes.values()
        )
        self._domains: dict[str, set[str]] = {}
        if settings.domain_label:
            for name, node in nodes.items():
                domain = node.metadata.labels.get(settings.domain_label)
                if domain is not None:
                    self._domains.setdefault(domain, set()).add(name)

    def start(self, name: str) -> None:
        """Note that a step of this node begins now."""
        self._busy.add(name)
        self._sick.add(name)

    def holds(self, node: NodeView) -> tuple[str, ...]:
        """Return reasons why no step may begin for the node; empty: it may."""
        return (
            *self._marks(node),
            *self._planned(node),
            *self._others(node),
            *self._storms(node),
            *self._view.doubts,
        )

    def pauses(self, node: NodeView, fence: NodeFence | None) -> tuple[str, ...]:
        """Return why nothing may be done for the node, not even its next method; empty: it may."""
        view = self._view
        reasons = [view.problem] if view.problem else []
        if fence is not None and fence.problem:
            reasons.append(fence.problem)
        marked = {**node.metadata.annotations, **(fence.metadata.annotations if fence is not None else {})}
        if PAUSE in marked:
            words = f"paused by an administrator (kubeletx remedy resume {node.name})"
            reasons.append(f"{words}: {marked[PAUSE]}" if marked[PAUSE] else words)
        if self._settings.pause:
            reasons.append("all nodes are paused by an administrator (kubeletx remedy resume --all)")
        if node.name in view.actors:
            reasons.append(f"another actor treats the node: its Lease is held by {view.actors[node.name]}")
        return tuple(reasons)

    def _marks(self, node: NodeView) -> Iterator[str]:
        meta = node.metadata
        for label in EXCLUDING:
            if meta.labels.get(label) == "true":
                yield f"the node is excluded by its label {label}"
        if self._has_label and meta.labels.get(FENCING) != "enabled":
            yield f"the node has no label {FENCING}=enabled: it shuts down as planned, or is not to be fenced"
        if meta.deletion_timestamp is not None:
            yield "the node is being deleted"
        if node.name == self._view.own_node:
            yield "this controller runs on the node"
        noted = meta.annotations.get(NOTE, "").split(",")
        for taint in node.spec.taints:
            if taint.key in _REMOVING:
                yield f"an autoscaler removes the node (taint {taint.key})"
            elif taint.key == OUT_OF_SERVICE and taint.key not in noted:
                yield f"another actor has set taint {taint.key}"

    def _planned(self, node: NodeView) -> Iterator[str]:
        """Yield which planned work goes on, until the node has not been ready for `planned_limit`."""
        ready = node.condition("Ready")
        since = ready.last_transition_time if ready is not None and ready.status != "True" else None
        if since is not None:
            age, seen = (self._now - since).total_seconds(), self._view.seen
            if min(age, age if seen is None else seen.get((node.name, "Ready"), 0.0)) >= (
                self._settings.planned_limit
            ):
                return
        for type_ in _PLANNED:
            condition = node.condition(type_)
            if condition is not None and condition.status == "True":
                yield f"planned: condition {type_} is True"
        for key in _PLANNED_MARKS:
            if key in node.metadata.annotations:
                yield f"planned: annotation {key} is set"
        if node.name in self._view.planned:
            yield f"planned: {self._view.planned[node.name]}"

    def _others(self, node: NodeView) -> Iterator[str]:
        """Yield what flows of other nodes forbid, and the control plane."""
        busy = self._busy - {node.name}
        if node.name in self._busy:  # several already run: the first by name goes on
            busy = {name for name in busy if name < node.name}
        if self._settings.one_at_a_time and busy:
            yield f"one node at a time: {min(busy)} is treated"
        if not node.is_control_plane:
            return
        treated = [name for name in busy if name in self._nodes and self._nodes[name].is_control_plane]
        if treated:
            yield f"one control plane node at a time: {min(treated)} is treated"
        if not any(
            each.is_ready and each.is_control_plane and each.name not in {*self._busy, node.name}
            for each in self._nodes.values()
        ):
            yield "no other control plane node is ready"

    def _storms(self, node: NodeView) -> Iterator[str]:
        if len(self._nodes) > 1 and len(self._sick) == len(self._nodes):
            yield f"all {len(self._nodes)} nodes are sick: the management side is suspected"
        yield from self._storm("", self._nodes.keys())
        label = self._settings.domain_label
        domain = node.metadata.labels.get(label, "") if label else ""
        members = self._domains.get(domain, set())
        if 0 < len(members) < len(self._nodes):
            yield from self._storm(f" of {label}={domain}", members)

    def _storm(self, where: str, members: AbstractSet[str]) -> Iterator[str]:
        count, allowed = len(members & self._sick), most_unhealthy(self._settings, len(members))
        if count > allowed:
            yield f"storm: {count} of {len(members)} nodes{where} are sick, at most {allowed} may be"
        elif len(members & (self._sick | self._view.recent)) > allowed:
            yield f"the storm{where} has ended less than {self._settings.cooldown:g} s ago"


def most_unhealthy(settings: RemedySettings, count: int) -> int:
    """Return how many of `count` nodes may be sick. Percentages are rounded down, to at least 1 if `at_least_one`."""
    text = settings.max_unhealthy
    allowed = int(text.rstrip("%")) * count // 100 if text.endswith("%") else int(text)
    return max(1, allowed) if settings.at_least_one else allowed


def is_busy(fence: NodeFence) -> bool:
    """Return True if the flow has begun to act and has not ended, or may have."""
    if fence.problem:
        return True
    status = fence.present_status
    is_first = fence.present_step is FlowStep.ISOLATION and status is FlowStatus.NEW
    is_first = is_first and not fence.flow.remedy and not fence.flow.restarts
    return not (fence.is_over or is_first or fence.flow.terminal)


def starts(before: NodeFence | None, after: NodeFence) -> bool:
    """Return True if the change begins, or begins again, a step that takes more from the cluster."""
    is_running = after.present_status is FlowStatus.RUNNING and after.present_step is not FlowStep.RECOVERY
    return is_running and (before is None or before.present_status is not FlowStatus.RUNNING)
