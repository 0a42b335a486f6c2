"""Rules for the nodes that may be treated now: storms, one node at a time, control planes, excluded and paused nodes. Pure.

`holds_of` gives reasons for which no step may begin that takes more from the cluster; a flow that runs goes on, and recovery
is never held. `pauses_of` gives reasons for which nothing at all is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from .model import FlowStatus, FlowStep, NodeFence, NodeView, RemedySettings

EXCLUDING: Final = ("remediation.medik8s.io/exclude-from-remediation",)
"""Labels of nodes that are left alone if their value is ``true``."""
PAUSE: Final = "remedy.kubeletx.io/pause"
"""Annotation of a NodeFence, a Node, or ConfigMap ``remedy-settings``: nothing is done until it is removed."""


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """Facts for the policy beside nodes and records. `own_node`: where this controller runs. `sick`: names of sick nodes.

    `problem`: why the view of the cluster cannot be trusted now; empty: it can.
    """

    own_node: str = ""
    sick: frozenset[str] = frozenset()
    problem: str = ""


def holds_of(
    node: NodeView,
    nodes: Mapping[str, NodeView],
    fences: Mapping[str, NodeFence],
    settings: RemedySettings,
    view: PolicyView,
) -> tuple[str, ...]:
    """Return reasons why no step may begin for the node; empty: it may."""
    return tuple(_holds(node, nodes, fences, settings, view))


def pauses_of(node: NodeView, fence: NodeFence | None, view: PolicyView) -> tuple[str, ...]:
    """Return why nothing may be done for the node, not even its next method; empty: it may."""
    reasons = [view.problem] if view.problem else []
    marked = {**node.metadata.annotations, **(fence.metadata.annotations if fence is not None else {})}
    if PAUSE in marked:
        reasons.append("paused by an administrator (kubeletx remedy resume)")
    return tuple(reasons)


def _holds(
    node: NodeView,
    nodes: Mapping[str, NodeView],
    fences: Mapping[str, NodeFence],
    settings: RemedySettings,
    view: PolicyView,
) -> Iterator[str]:
    labels = node.metadata.labels
    for label in EXCLUDING:
        if labels.get(label) == "true":
            yield f"the node is excluded by its label {label}"
    if node.metadata.deletion_timestamp is not None:
        yield "the node is being deleted"
    if node.name == view.own_node:
        yield "this controller runs on the node"
    if node.is_control_plane and not any(
        other.is_ready and other.is_control_plane and other.name != node.name for other in nodes.values()
    ):
        yield "no other control plane node is ready"
    busy = [name for name, fence in fences.items() if name != node.name and _is_busy(fence)]
    if settings.one_at_a_time and busy:
        yield f"one node at a time: {busy[0]} is treated"
    allowed = most_unhealthy(settings, len(nodes))
    if len(view.sick) > allowed:
        yield f"storm: {len(view.sick)} of {len(nodes)} nodes are sick, at most {allowed} may be"


def most_unhealthy(settings: RemedySettings, count: int) -> int:
    """Return how many of `count` nodes may be sick. Percentages are rounded down, to at least 1 if `at_least_one`."""
    text = settings.max_unhealthy
    allowed = int(text.rstrip("%")) * count // 100 if text.endswith("%") else int(text)
    return max(1, allowed) if settings.at_least_one else allowed


def _is_busy(fence: NodeFence) -> bool:
    """Return True if the flow has begun to act and has not ended."""
    status = fence.present_status
    is_first = fence.present_step is FlowStep.ISOLATION and status is FlowStatus.NEW
    return not (fence.is_over or is_first or fence.flow.terminal)
