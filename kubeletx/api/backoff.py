"""`Backoff`: growing delays between tries of one thing. No clock and no I/O."""

from __future__ import annotations

import math
import random
from collections.abc import Callable


class Backoff:
    """Delays in seconds: `first`, then twice as long each time up to `cap`.

    `forget`: after a quiet time of this length the delays begin again. `jitter`: up to this share of the delay is added.
    `draw`: returns the share, 0 to 1.
    """

    def __init__(
        self,
        first: float,
        cap: float,
        *,
        forget: float = math.inf,
        jitter: float = 0.0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._first, self._cap, self._forget, self._jitter = first, cap, forget, jitter
        self._delay = 0.0
        self._due_at = -math.inf
        self._draw = draw

    def next(self, now: float = 0.0, *, at_least: float = 0.0) -> float:
        """Return the delay after a failure at the monotonic time `now`, which only a Backoff with `forget` needs.

        `at_least`: the delay that the server asked for; jitter comes on top, since it asks others for the same.
        """
        if now - self._due_at > self._forget:
            self._delay = 0.0
        self._delay = min(self._cap, self._delay * 2 or self._first)
        seconds = max(at_least, self._delay) + self._delay * self._jitter * self._draw()
        self._due_at = now + seconds  # a long wait is no quiet time
        return seconds

    def reset(self) -> None:
        """Begin again with the first delay, after a success."""
        self._delay = 0.0
