"""Back-off rules: when an ended container may start again, and when a failed action is tried again.

Crash loop (docs/kubelet-parity.md, rows B1 and B2). Each container has at most one `RestartBackoff` entry. A
container without an entry restarts at once. Every restart writes the next entry: 10 s, 20 s, ... up to the
cap. The delay counts from the *exit*. The entry is forgotten if the container exits more than twice the cap
after its last *restart*. These are the rules of client-go's `flowcontrol.Backoff` as the kubelet uses them.

    exit, no entry      -> start now, entry 10 s
    exit, entry 10 s    -> start 10 s after the exit, entry 20 s
    ...                 -> entry 300 s (cap)
    exit > 600 s after the last restart -> forgotten: start now, entry 10 s

Failures (image pulls, sandboxes, hooks, volumes) use `next_failure` with one of the policies below: the first
retry comes after `initial_seconds`, each further one after twice the previous delay. The caller passes the
random number for the jitter, so that all functions here are pure.
"""

from __future__ import annotations

import msgspec

from kubeletx.node.events import shortened

from .facts import ActionFailure, RestartBackoff

CRASH_INITIAL_SECONDS = 10.0
CRASH_CAP_SECONDS = 300.0


def is_forgotten(entry: RestartBackoff | None, exited_at: float, *, cap: float = CRASH_CAP_SECONDS) -> bool:
    """Return True if earlier crashes of the container no longer count.

    This is so if there is no entry, or if the container exited more than twice `cap` seconds after its last
    restart. `exited_at`: monotonic.
    """
    return entry is None or exited_at - entry.updated_at > 2 * cap


def restart_at(
    entry: RestartBackoff | None, exited_at: float, now: float, *, cap: float = CRASH_CAP_SECONDS
) -> float | None:
    """Return the time at which a container that ended at `exited_at` may start again; None means now.

    All times are monotonic seconds. `entry`: the entry that the last restart wrote; None before the first
    restart. `cap`: upper bound of the delay in seconds.
    """
    if entry is None or is_forgotten(entry, exited_at, cap=cap):
        return None
    due = exited_at + min(entry.delay_seconds, cap)
    return due if due > now else None


def next_backoff(
    entry: RestartBackoff | None,
    exited_at: float,
    *,
    now: float | None = None,
    initial: float = CRASH_INITIAL_SECONDS,
    cap: float = CRASH_CAP_SECONDS,
) -> RestartBackoff:
    """Return the entry to store when the container that ended at `exited_at` is started again.

    `entry`: the previous entry, if any. `now`: time of the start; None: the earliest time that `restart_at`
    allows. Times are monotonic.
    """
    if now is None:
        now = restart_at(entry, exited_at, exited_at, cap=cap) or exited_at
    if entry is None or is_forgotten(entry, exited_at, cap=cap):
        return RestartBackoff(delay_seconds=min(initial, cap), updated_at=now)
    return RestartBackoff(delay_seconds=min(entry.delay_seconds * 2, cap), updated_at=now)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Back-off delays of a failed action: `initial_seconds` first, then doubled each time up to `cap_seconds`.

    `jitter`: fraction by which a delay may be longer or shorter; 0.5 means by up to half.
    """

    initial_seconds: float
    cap_seconds: float
    jitter: float = 0.0


IMAGE = RetryPolicy(initial_seconds=10, cap_seconds=300)
"""For image pulls (docs/kubelet-parity.md, row B3)."""
SANDBOX = RetryPolicy(initial_seconds=0.1, cap_seconds=10, jitter=0.5)
"""For creating, stopping and removing sandboxes."""
SYNC = RetryPolicy(initial_seconds=0.1, cap_seconds=10, jitter=0.5)
"""For all other retries of the pod worker: unit creation, stops, directories (docs/kubelet-parity.md, row W1)."""
VOLUME = RetryPolicy(initial_seconds=0.5, cap_seconds=122, jitter=0.1)
"""For preparing and releasing volumes."""


def failure_backoff(previous: ActionFailure | None, policy: RetryPolicy) -> float:
    """Return the seconds to wait after a new failure, without jitter.

    `previous`: the failure before the new one; None if the new one is the first in a row.
    """
    if previous is None or previous.delay_seconds <= 0:
        return min(policy.initial_seconds, policy.cap_seconds)
    return min(previous.delay_seconds * 2, policy.cap_seconds)


def next_failure(
    previous: ActionFailure | None,
    policy: RetryPolicy,
    *,
    reason: str,
    message: str,
    now: float,
    draw: float = 0.5,
) -> ActionFailure:
    """Return the record of a new failure, with the time of the next try.

    `previous`: the failure before the new one; None if the new one is the first in a row. `now`: monotonic.
    `draw`: a random number from 0 to 1 that places the retry within the policy's jitter (0.5: the middle).
    `delay_seconds` of the result does not include the jitter.
    """
    delay = failure_backoff(previous, policy)
    spread = 1 + policy.jitter * (2 * min(max(draw, 0.0), 1.0) - 1)
    return ActionFailure(
        reason=reason,
        message=shortened(message),
        retry_at=now + delay * spread,
        delay_seconds=delay,
        count=previous.count + 1 if previous else 1,
    )


def duration_text(seconds: float) -> str:
    """Format seconds as in the kubelet's messages: 10s, 1m20s, 5m0s, 1h0m0s; below one second as 500ms."""
    whole = round(seconds)
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
