"""Groups of pods in a shutdown of the host: their order and their time. Pure.

Source: kubelet, pkg/kubelet/nodeshutdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

CRITICAL_PRIORITY: Final = 2_000_000_000

T = TypeVar("T")


class ShutdownGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Pods with at least this priority and less than that of the next group."""

    priority: int
    shutdown_grace_period_seconds: int


def groups_of(
    grace_seconds: float, critical_grace_seconds: float, by_priority: Sequence[ShutdownGroup] = ()
) -> tuple[ShutdownGroup, ...]:
    """The groups in the order in which they end; empty: a shutdown ends no pods."""
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
    """Longest time for which the host has to wait, in seconds."""
    return sum(group.shutdown_grace_period_seconds for group in groups)


def in_order(
    groups: Sequence[ShutdownGroup], priorities: Mapping[T, int]
) -> tuple[tuple[ShutdownGroup, tuple[T, ...]], ...]:
    """Each group with its members, in the order in which they end; the first also has pods below all priorities."""
    ordered = sorted(groups, key=lambda group: group.priority)
    members: dict[int, list[T]] = {index: [] for index in range(len(ordered))}
    for one, priority in priorities.items():
        at = sum(group.priority <= priority for group in ordered)
        if members:
            members[max(at - 1, 0)].append(one)
    return tuple((group, tuple(members[index])) for index, group in enumerate(ordered))
