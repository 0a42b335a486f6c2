"""Deadlines, concurrency limits and intervals of one runtime."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one runtime; the defaults are the kubelet's where it has the setting.

    `request_seconds` is ``--runtime-request-timeout``; creating a sandbox gets twice that, stopping a unit its grace
    period in addition. Changing calls, stopping calls and queries have separate limits, so that a query never waits
    behind a slow create, nor a create behind thirty pods that use up their grace periods.
    """

    request_seconds: float = 120.0
    query_seconds: float = 30.0
    probe_seconds: float = 3.0
    probe_interval_seconds: float = 5.0
    health_grace_seconds: float = 10.0
    """``--runtime-health-grace-period``: silence after which a runtime is unreachable and not ready."""
    open_seconds: float = 10.0
    changing: int = 8
    """Concurrent creates, starts and removals.

    On 2 processors containerd starts most pods in a second with 4 to 8; with 16 it spends more processor time on each
    and starts fewer (docs/performance.md).
    """
    stopping: int = 128
    querying: int = 32
    relist_seconds: float = 1.0
    """Interval of lists for a runtime without an event stream."""
    safety_relist_seconds: tuple[float, float] = (60.0, 300.0)
    """With events: range of the random interval between two lists."""
    settle_seconds: float = 2.0
    """Delay after a subscription until one more list, for changes before the subscription took effect."""
