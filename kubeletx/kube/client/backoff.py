"""Back-off after failures: doubles with jitter, resets after a quiet time, and is never less than the server demands."""

from __future__ import annotations

import random

FIRST_SECONDS = 0.8
CAP_SECONDS = 30.0
FORGET_SECONDS = 120.0


class Backoff:
    """Source: client-go, tools/cache/reflector.go (0.8 s, doubled to 30 s, jitter of the same length again)."""

    def __init__(
        self,
        *,
        first: float = FIRST_SECONDS,
        cap: float = CAP_SECONDS,
        forget: float = FORGET_SECONDS,
        draw: random.Random | None = None,
    ) -> None:
        """Seconds. `draw`: where jitter comes from."""
        self._first, self._cap, self._forget = first, cap, forget
        self._delay = 0.0
        self._due_at = float("-inf")
        self._random = draw or random.Random()

    def next(self, now: float, *, at_least: float = 0.0) -> float:
        """Something failed at the monotonic time `now`: seconds until the next try.

        `at_least`: what the server asked for (`least_seconds`); jitter comes on top, since it asks others for the same.
        """
        if now - self._due_at > self._forget:
            self._delay = 0.0
        self._delay = min(self._cap, self._delay * 2 or self._first)
        seconds = max(at_least, self._delay) + self._delay * self._random.random()
        self._due_at = now + seconds  # a long wait is no quiet time
        return seconds

    def reset(self) -> None:
        """Reset after a success."""
        self._delay = 0.0
