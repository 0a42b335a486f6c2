"""Pacing of repeated actions that report no error and have no effect. Pure.

A plan names an action again while the facts still ask for it. A runtime that reports success and does nothing would
otherwise be called again in an endless loop. The first `FREE` repeats are immediate, since a runtime's list
may be slightly older than its answer; then each wait is twice the previous one. A failure has its own back-off
(`backoff`) and is not counted here. Restarts of a container are not repeats: each has another attempt.

    done, asked again ─► at once, `FREE` times ─► after 0.1 s, 0.2 s, ... 10 s ─► not asked for 20 s: forgotten
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from .actions import Action
from .backoff import SYNC
from .facts import Now, Pace, PodFacts

FREE = 3
NOTICED = 6
"""Repeats without effect after which an event names the action."""
FORGOTTEN_SECONDS = 2 * SYNC.cap_seconds

_FIELDS = ("name", "unit_id", "sandbox_id")


def doing(action: Action) -> str:
    """The action as text: ``stopping container web``."""
    return f"{action.doing} {getattr(action, 'name', '')}".rstrip()


def due_at(paces: Mapping[str, Pace], action: Action) -> float | None:
    """Monotonic time at which the action may be repeated; None means now."""
    pace = paces.get(_key(action))
    if pace is None or pace.count <= FREE:
        return None
    doublings = min(pace.count - FREE - 1, 20)
    return pace.at + min(SYNC.initial_seconds * float(1 << doublings), SYNC.cap_seconds)


def count_done(facts: PodFacts, action: Action, now: Now) -> tuple[PodFacts, int]:
    """Facts after the action ended, and how often in a row it succeeded without effect."""
    if not action.doing or action.failure(facts) is not None:
        return facts, 0
    paces = {key: one for key, one in facts.paces.items() if now.mono - one.at <= FORGOTTEN_SECONDS}
    before = paces.get(_key(action))
    pace = Pace(count=1 if before is None else before.count + 1, at=now.mono)
    return replace(facts, paces={**paces, _key(action): pace}), pace.count


def _key(action: Action) -> str:
    """Key of a repeated action: its kind and target, for a start with its attempt."""
    ids = (str(getattr(action, field, "")) for field in _FIELDS)
    return "/".join((type(action).__name__, *ids, action.target))
