"""`Backoff`: growing delays between tries of one thing. No clock and no I/O."""

from __future__ import annotations

import math
import random
from collections.abc import Callable


class Backoff:
    """Growing delays between tries, in seconds: `first`, then twice as long each time, up to `cap`.

    `forget`: after this many seconds without a failure, the delays begin with `first` again. `jitter`: up to
    this share of a delay is added to it. `draw`: returns the random part of that share, 0 to 1.
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
        """Return the seconds to wait after a failure. `now`: monotonic time, needed only with `forget`.

        `at_least`: wait that the server asked for. Jitter is added to that too, since other clients got the
        same wait.
        """
        if now - self._due_at > self._forget:
            self._delay = 0.0
        self._delay = min(self._cap, self._delay * 2 or self._first)
        seconds = max(at_least, self._delay) + self._delay * self._jitter * self._draw()
        self._due_at = now + seconds  # a long wait is no quiet time
        return seconds

    def reset(self) -> None:
        """Begin with the first delay again. Call it after a success."""
        self._delay = 0.0
