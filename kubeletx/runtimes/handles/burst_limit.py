"""`BurstLimit`: limits how often something happens. No clock and no I/O."""

from __future__ import annotations

_ONE = 1 - 1e-6
"""Tokens that count as one: the end of `wait_seconds` never misses a token by a rounding error."""


class BurstLimit:
    """Permits `burst` uses at once, and after that `per_second` uses a second on average.

    Times are monotonic seconds.
    """

    __slots__ = ("_at", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = burst, 0.0

    def take(self, now: float) -> bool:
        """Use one token and return True; return False if there is none now."""
        self._refill(now)
        if self._tokens < _ONE:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a token is there; 0 if there is one now."""
        self._refill(now)
        return 0.0 if self._tokens >= _ONE else (1 - self._tokens) / self._per_second

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now
