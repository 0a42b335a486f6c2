"""`Backoff`: exponentially growing delays between retries of one operation. No clock and no I/O."""

from __future__ import annotations

import math
import random
from collections.abc import Callable


class Backoff:
    """Delays between retries, in seconds: `first`, then twice as long each time, up to `cap`.

    `forget`: the delays begin with `first` again if the next failure comes more than this many seconds after
    the end of the last delay. `jitter`: maximum random addition to a delay, as a fraction of the delay.
    `draw`: random source of the jitter; returns a number from 0 to 1.
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
        """Return the seconds to wait before the next retry. Call it once after each failure.

        `now`: monotonic time, needed only with `forget`. `at_least`: minimum wait, such as a server's
        Retry-After. Jitter is added to it too, since the server may have sent other clients the same value.
        """
        if now - self._due_at > self._forget:
            self._delay = 0.0
        self._delay = min(self._cap, self._delay * 2 or self._first)
        seconds = max(at_least, self._delay) + self._delay * self._jitter * self._draw()
        self._due_at = now + seconds  # `forget` counts from the end of the delay
        return seconds

    def reset(self) -> None:
        """Begin with the first delay again. Call it after a success."""
        self._delay = 0.0
