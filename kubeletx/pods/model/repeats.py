"""Delays between repeats of an action that reports success but has no effect. Pure.

A plan requests an action again as long as the pod is not in the desired state. Without delays, a runtime that
reports success and changes nothing would be called in an endless loop. The first `FREE` repeats are immediate,
since a list from the runtime may be slightly older than its last answer. After that each delay is twice the
previous one. Failed actions are not counted here; they have their own delays (`backoff`). Restarts of a container
are not repeats, since each has a new attempt number.

    repeats 1 to `FREE`: at once ─► then after 0.1 s, 0.2 s, ... 10 s ─► no run for 20 s: the count starts again

Reads of the pod's state (`Look`) that show no change are delayed in the same way, by at most 1 s: a runtime may report
changes all the time that its lists do not show. A read that shows a change sets the count back.

    reads 1 to `FREE_LOOKS`: at once ─► then after 0.2 s, 0.4 s, 0.8 s, 1 s, 1 s, ...
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from .actions import Action, Look
from .backoff import SYNC, RetryPolicy
from .facts import Now, PodFacts, RepeatCount

FREE = 3
NOTICED = 6
"""Number of successful runs in a row after which an event reports that the action has no effect."""
FORGOTTEN_SECONDS = 2 * SYNC.cap_seconds
FREE_LOOKS = 8
LOOKS = RetryPolicy(initial_seconds=0.2, cap_seconds=1.0)
LOOKS_FORGOTTEN_SECONDS = 2 * LOOKS.cap_seconds

_FIELDS = ("name", "unit_id", "sandbox_id")


def doing(action: Action) -> str:
    """Describe the running action, such as ``stopping container web``."""
    return f"{action.doing} {getattr(action, 'name', '')}".rstrip()


def due_at(repeats: Mapping[str, RepeatCount], action: Action) -> float | None:
    """Return the monotonic time at which the action may be repeated; None means now."""
    repeat = repeats.get(_key(action))
    free, policy = (FREE_LOOKS, LOOKS) if isinstance(action, Look) else (FREE, SYNC)
    if repeat is None or repeat.count <= free:
        return None
    doublings = min(repeat.count - free - 1, 20)
    return repeat.at + min(policy.initial_seconds * float(1 << doublings), policy.cap_seconds)


def count_done(
    facts: PodFacts, action: Action, now: Now, *, was_cancelled: bool = False
) -> tuple[PodFacts, int]:
    """Count a run of the action that has just ended; return the new facts and its number of runs in a row.

    The number is 0 if the action failed or if its repeats are not counted. Runs that were cancelled delay the next one
    like others, but the number is without them: the runtime is not the cause that they had no effect.
    """
    if not action.doing or action.failure(facts) is not None:
        return facts, 0
    repeats = {
        key: repeat for key, repeat in facts.repeats.items() if now.mono - repeat.at <= FORGOTTEN_SECONDS
    }
    before = repeats.get(_key(action))
    count, cancelled = (before.count, before.cancelled) if before is not None else (0, 0)
    repeat = RepeatCount(count=count + 1, cancelled=cancelled + was_cancelled, at=now.mono)
    return replace(facts, repeats={**repeats, _key(action): repeat}), repeat.count - repeat.cancelled


def count_look(facts: PodFacts, action: Look, now: Now, *, has_news: bool) -> PodFacts:
    """Count a read of the pod's state that has just ended; return the new facts.

    `has_news`: it showed another state than the read before it.
    """
    key = _key(action)
    before = facts.repeats.get(key)
    if has_news:
        return facts if before is None else replace(facts, repeats=_without(facts.repeats, key))
    is_first = before is None or now.mono - before.at > LOOKS_FORGOTTEN_SECONDS
    repeat = RepeatCount(count=1 if before is None or is_first else before.count + 1, at=now.mono)
    return replace(facts, repeats={**facts.repeats, key: repeat})


def _without(repeats: Mapping[str, RepeatCount], key: str) -> dict[str, RepeatCount]:
    return {other: repeat for other, repeat in repeats.items() if other != key}


def _key(action: Action) -> str:
    """Return the key under which repeats are counted: the action's class, name, IDs and `target`."""
    ids = (str(getattr(action, field, "")) for field in _FIELDS)
    return "/".join((type(action).__name__, *ids, action.target))
