"""`TtlCache`: keeps each answer until its deadline, and a bounded number of answers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

MAX_ANSWERS = 4096


class TtlCache(Generic[V]):
    """Times are monotonic seconds of the caller. When full, the oldest answer goes."""

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        self._limit = limit
        self._answers: dict[Hashable, tuple[float, V]] = {}

    def find(self, key: Hashable, now: float) -> V | None:
        """The answer, while it is good."""
        until, answer = self._answers.get(key, (now, None))
        if until > now:
            return answer
        self._answers.pop(key, None)
        return None

    def put(self, key: Hashable, answer: V, until: float) -> None:
        """Keep it until then."""
        self._answers.pop(key, None)
        while len(self._answers) >= self._limit:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (until, answer)
