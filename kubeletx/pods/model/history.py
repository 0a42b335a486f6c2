"""History of a pod: its last actions and their results, and the actions of its start. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from kubeletx.kube.types.core import PodStatus

from .actions import Action, Look
from .phase import FINAL
from .results import Nothing, Result, Together

KEPT: Final = 50
"""Number of entries kept per pod. Consecutive runs with equal action and result share one entry."""
START_STEPS: Final = 40
"""Number of actions kept of the start of a pod; later ones are left out."""
TEXT_LENGTH: Final = 200
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One action with its result, as text. `count`: number of runs in a row with the same result.

    `at`: end of the last run, UTC. `seconds`: duration of the last run.
    """

    at: datetime
    action: str
    result: str
    seconds: float
    count: int = 1

    def line(self) -> str:
        """Return the entry as one line of text."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.action}: {self.result}{times}"


class PodStart(msgspec.Struct, kw_only=True):
    """The start of a pod: its actions in the order in which they ended, and times in UTC.

    `seen_at`: when the agent first saw the pod. `running_at`, `ready_at`: first published status with phase Running, and
    with condition Ready; None before. `ended_at`: the pod ended before it was ready. `steps`: at most `START_STEPS`.
    """

    seen_at: datetime
    running_at: datetime | None = None
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    steps: list[HistoryEntry] = []

    @property
    def is_over(self) -> bool:
        return self.ready_at is not None or self.ended_at is not None


class History:
    """The last `KEPT` actions of one pod with their results, and its start."""

    def __init__(self, seen_at: datetime | None = None) -> None:
        """`seen_at`: when the agent first saw the pod; None: the pod existed before this agent process."""
        self._entries: deque[HistoryEntry] = deque(maxlen=KEPT)
        self.start = PodStart(seen_at=seen_at) if seen_at is not None else None

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        return tuple(self._entries)

    def add(self, action: Action, result: Result | None, *, at: datetime, seconds: float) -> None:
        """Record that an action ended at `at` after `seconds`. `result` None: the action was cancelled."""
        words = "cancelled" if result is None else describe_result(result)
        entry = HistoryEntry(at=at, action=describe_action(action), result=words, seconds=seconds)
        start = self.start
        if start is not None and not start.is_over and not isinstance(action, Look):
            start.steps = [*start.steps, entry][:START_STEPS]
        last = self._entries[-1] if self._entries else None
        if last is not None and (last.action, last.result) == (entry.action, entry.result):
            self._entries[-1] = msgspec.structs.replace(entry, count=last.count + 1)
        else:
            self._entries.append(entry)

    def published(self, status: PodStatus, at: datetime) -> None:
        """Note in the start that this status of the pod was published."""
        start = self.start
        if start is None or start.is_over:
            return
        if status.phase in FINAL:
            start.ended_at = at
        elif status.phase == "Running":
            start.running_at = start.running_at or at
            if any(each.type == "Ready" and each.status == "True" for each in status.conditions):
                start.ready_at = at

    def last_lines(self, count: int = 5) -> list[str]:
        """Return the newest `count` entries as lines of text, oldest first."""
        return [entry.line() for entry in list(self._entries)[-count:]]


def describe_action(action: Action) -> str:
    """Describe the action in words, such as ``start unit web``."""
    return f"{words_of(type(action))} {getattr(action, 'name', '')}".rstrip()


def describe_result(result: Result) -> str:
    """Describe the result in words, with its reason and message, in at most `TEXT_LENGTH` characters."""
    if isinstance(result, Nothing):
        return "done"
    if isinstance(result, Together):
        text = ", ".join(describe_result(part) for part in result.results)
    else:
        details = [str(getattr(result, field, "") or "") for field in ("reason", "message")]
        text = ": ".join([words_of(type(result)), *filter(None, details)])
    return text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 3] + "..."


@lru_cache(maxsize=256)
def words_of(kind: type[Action | Result]) -> str:
    """Return the name of the class as words, such as ``start unit``."""
    return _WORD.sub(" ", kind.__name__).lower()
