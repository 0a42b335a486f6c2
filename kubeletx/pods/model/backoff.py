"""Back-off rules: when an ended container may start again, and when a failed action is tried again.

Crash loop (B1, B2 in docs/kubelet-parity.md). An entry belongs to one container. The first restart does not
wait: a container that ends without an entry, or whose entry was idle for more than twice the cap, starts
again at once. Every restart writes the next entry: 10 s, 20 s, ... up to the cap; the delay counts from the
*exit*, the idle time from the *restart*. These are the rules of client-go's `flowcontrol.Backoff` as the
kubelet uses them.

    exit, no entry      -> start now, entry 10 s
    exit, entry 10 s    -> start 10 s after the exit, entry 20 s
    ...                 -> entry 300 s (cap)
    exit > 600 s after the last restart -> forgotten: start now, entry 10 s

Failures (image pulls, sandboxes, hooks, volumes) use `next_failure` with one of the policies below: the first
retry comes after `initial_seconds`, each further one after twice as long. Jitter is drawn by the caller and
handed in, so that everything here stays a function of its arguments.
"""

from __future__ import annotations

import msgspec

from kubeletx.node.events import shortened

from .facts import ActionFailure, RestartBackoff

CRASH_INITIAL_SECONDS = 10.0
CRASH_CAP_SECONDS = 300.0


def is_forgotten(entry: RestartBackoff | None, exited_at: float, *, cap: float = CRASH_CAP_SECONDS) -> bool:
    """Return True without an entry, or if the container ran so long that earlier crashes no longer count."""
    return entry is None or exited_at - entry.updated_at > 2 * cap


def restart_at(
    entry: RestartBackoff | None, exited_at: float, now: float, *, cap: float = CRASH_CAP_SECONDS
) -> float | None:
    """Time at which a container that ended at `exited_at` may start again; None means now.

    All times are monotonic seconds. `entry` is what the last restart left, None before the first one.
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
    """The entry to keep once the container that ended at `exited_at` is started again.

    `now`: when it is started again; None: at the first moment that `restart_at` allows.
    """
    if now is None:
        now = restart_at(entry, exited_at, exited_at, cap=cap) or exited_at
    if entry is None or is_forgotten(entry, exited_at, cap=cap):
        return RestartBackoff(delay_seconds=min(initial, cap), updated_at=now)
    return RestartBackoff(delay_seconds=min(entry.delay_seconds * 2, cap), updated_at=now)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Delays between tries of a failed action: `initial_seconds`, doubled each time, at most `cap_seconds`.

    `jitter`: fraction of the delay by which it may be longer or shorter; 0.5 is half of it.
    """

    initial_seconds: float
    cap_seconds: float
    jitter: float = 0.0


IMAGE = RetryPolicy(initial_seconds=10, cap_seconds=300)
"""For image pulls (B3)."""
SANDBOX = RetryPolicy(initial_seconds=0.1, cap_seconds=10, jitter=0.5)
"""For creating, stopping and removing sandboxes."""
SYNC = RetryPolicy(initial_seconds=0.1, cap_seconds=10, jitter=0.5)
"""For everything else that the worker retries (W1): unit creation, stops, directories."""
VOLUME = RetryPolicy(initial_seconds=0.5, cap_seconds=122, jitter=0.1)
"""For preparing and releasing volumes."""


def failure_backoff(previous: ActionFailure | None, policy: RetryPolicy) -> float:
    """Seconds to wait after one more failure, without jitter.

    `previous`: the failure before it; None: the first.
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
    """Return the failure to keep, with the time of the next try.

    `previous`: the failure before it; None: the first. `draw`: a random number from 0 to 1 that places the
    retry within the policy's jitter (0.5: the middle). `ActionFailure.delay_seconds` is the step without
    jitter. `now` is monotonic.
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
    """Seconds as the kubelet writes them in its messages: 10s, 1m20s, 5m0s, 1h0m0s."""
    whole = round(seconds)
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
