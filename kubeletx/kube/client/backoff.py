"""Back-off after failures of an API server: with jitter, reset after two minutes without a failure.

Source: client-go, tools/cache/reflector.go (0.8 s, doubled up to 30 s; jitter adds up to the same time again).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kubeletx.api.backoff import Backoff

FIRST_SECONDS = 0.8
CAP_SECONDS = 30.0
FORGET_SECONDS = 120.0


def server_backoff(
    *, first: float = FIRST_SECONDS, cap: float = CAP_SECONDS, draw: Callable[[], float] = random.random
) -> Backoff:
    """Return a `Backoff` for repeated requests to an API server.

    `first`, `cap`: the shortest and longest delay in seconds, without jitter. `draw`: see `Backoff`.
    """
    return Backoff(first, cap, forget=FORGET_SECONDS, jitter=1.0, draw=draw)
