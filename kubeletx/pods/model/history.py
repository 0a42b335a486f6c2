"""History of a pod: its last actions and their results, for `describe --history` and for log lines of bugs. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from .actions import Action
from .results import Nothing, Result, Together

KEPT: Final = 50
"""Number of entries kept per pod. Consecutive runs with equal action and result share one entry."""
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


class History:
    """The last `KEPT` actions of one pod with their results."""

    def __init__(self) -> None:
        self._entries: deque[HistoryEntry] = deque(maxlen=KEPT)

    @property
    def entries(self) -> Sequence[HistoryEntry]:
        return tuple(self._entries)

    def add(self, action: Action, result: Result | None, *, at: datetime, seconds: float) -> None:
        """Record that an action ended at `at` after `seconds`. `result` None: the action was cancelled."""
        words = "cancelled" if result is None else describe_result(result)
        entry = HistoryEntry(at=at, action=describe_action(action), result=words, seconds=seconds)
        last = self._entries[-1] if self._entries else None
        if last is not None and (last.action, last.result) == (entry.action, entry.result):
            self._entries[-1] = msgspec.structs.replace(entry, count=last.count + 1)
        else:
            self._entries.append(entry)

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
