"""`TtlCache`: keeps a bounded number of answers, each until its deadline."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

MAX_ANSWERS = 4096


class TtlCache(Generic[V]):
    """Cache of bounded size whose entries expire.

    Times are monotonic seconds that the caller gives. When `limit` entries are cached, the next one replaces the
    oldest.
    """

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        self._limit = limit
        self._answers: dict[Hashable, tuple[float, V]] = {}

    def find(self, key: Hashable, now: float) -> V | None:
        """Return the answer cached under `key`; None if there is none or it has expired at the time `now`."""
        until, answer = self._answers.get(key, (now, None))
        if until > now:
            return answer
        self._answers.pop(key, None)
        return None

    def put(self, key: Hashable, answer: V, until: float) -> None:
        """Cache the answer until the time `until`."""
        self._answers.pop(key, None)
        while len(self._answers) >= self._limit:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (until, answer)
