"""Deadlines, concurrency limits and intervals of one runtime."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines, concurrency limits and intervals of one runtime. The defaults are the kubelet's where it has them.

    `request_seconds`: deadline of changing calls, ``--runtime-request-timeout``. Creating a sandbox has twice this
    deadline; for stopping a container or machine its grace period is added. `querying`, `changing`, `switching`,
    `stopping`: limits of concurrent calls. They are separate, so that a query never waits for a slow create, and a
    create never waits for pods that use up their grace periods.
    """

    request_seconds: float = 120.0
    query_seconds: float = 30.0
    probe_seconds: float = 3.0
    probe_interval_seconds: float = 5.0
    health_grace_seconds: float = 10.0
    """``--runtime-health-grace-period``: time without an answer after which a runtime is unreachable and not ready."""
    open_seconds: float = 10.0
    grace_seconds: float = 1.0
    """Time in seconds that a cancelled call has for its clean-up."""
    changing: int = 8
    """Concurrent creates, starts and removals.

    On 2 processors containerd starts most pods in a second with 4 to 8; with 16 it spends more processor time on each
    and starts fewer (docs/performance.md).
    """
    switching: int = 16
    """Concurrent freezes and thaws of units, which are quick, and reads of their statuses afterwards."""
    stopping: int = 128
    querying: int = 32
    relist_seconds: float = 1.0
    """Interval in seconds of lists of all pods, for a runtime without an event stream."""
    safety_relist_seconds: tuple[float, float] = (60.0, 300.0)
    """Range of the random interval in seconds between two lists of all pods, for a runtime with an event stream."""
    settle_seconds: float = 2.0
    """Delay between subscribing to events and one more list, for changes before the subscription took effect."""
