"""Groups the pods for a shutdown of the host: in which order they end, and how long each group may take. Pure.

Source: kubelet, pkg/kubelet/nodeshutdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

CRITICAL_PRIORITY: Final = 2_000_000_000

T = TypeVar("T")


class ShutdownGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Pods that end together: their priority is at least `priority`, and less than the next group's."""

    priority: int
    shutdown_grace_period_seconds: int


def groups_of(
    grace_seconds: float, critical_grace_seconds: float, by_priority: Sequence[ShutdownGroup] = ()
) -> tuple[ShutdownGroup, ...]:
    """Return the groups in the order in which they end; empty if the agent does not end pods at a shutdown.

    `by_priority`: configured groups. If it is empty, there are two groups, regular pods and then critical pods:
    `critical_grace_seconds` are for critical pods, the rest of `grace_seconds` for regular pods.
    """
    if by_priority:
        return tuple(sorted(by_priority, key=lambda group: group.priority))
    if grace_seconds <= 0:
        return ()
    regular = round(grace_seconds - critical_grace_seconds)
    return (
        ShutdownGroup(priority=0, shutdown_grace_period_seconds=regular),
        ShutdownGroup(
            priority=CRITICAL_PRIORITY, shutdown_grace_period_seconds=round(critical_grace_seconds)
        ),
    )


def total_seconds(groups: Sequence[ShutdownGroup]) -> int:
    """Return the longest time, in seconds, that the host's shutdown must wait: the sum over all groups."""
    return sum(group.shutdown_grace_period_seconds for group in groups)


def in_order(
    groups: Sequence[ShutdownGroup], priorities: Mapping[T, int]
) -> tuple[tuple[ShutdownGroup, tuple[T, ...]], ...]:
    """Return each group with its pods, in the order in which the groups end.

    `priorities`: priority of each pod. A pod with a lower priority than every group is in the first group.
    """
    ordered = sorted(groups, key=lambda group: group.priority)
    members: dict[int, list[T]] = {index: [] for index in range(len(ordered))}
    for member, priority in priorities.items():
        at = sum(group.priority <= priority for group in ordered)
        if members:
            members[max(at - 1, 0)].append(member)
    return tuple((group, tuple(members[index])) for index, group in enumerate(ordered))
