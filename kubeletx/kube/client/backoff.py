"""Back-off after failures of an API server: with jitter, reset after two minutes without a failure; and a loop with it.

Source: client-go, tools/cache/reflector.go (0.8 s, doubled up to 30 s; jitter adds up to the same time again).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from kubeletx.api import Clock, KubeletxError
from kubeletx.api.backoff import Backoff

from .errors import least_seconds

if TYPE_CHECKING:
    from .requests import KubeClient

log = structlog.get_logger(__name__)

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


async def run_sync_loop(
    news: asyncio.Event,
    sync: Callable[[], Awaitable[None]],
    client: KubeClient,
    clock: Clock,
    *,
    what: str,
    backoff: Backoff,
) -> None:
    """Keep an object of the API server equal to this node's state: call `sync` each time `news` is set, until cancelled.

    After a failure `sync` is called again, with back-off.

    `what`: text that is logged at the first of consecutive failures; the client logs an outage of the API server.
    """
    problem = ""
    while True:
        await news.wait()
        news.clear()
        try:
            await sync()
        except KubeletxError as error:
            if not problem and not client.problem:
                log.warning(what, err=str(error))
            problem = str(error)
            await client.pause(backoff.next(clock.monotonic(), at_least=least_seconds(error)))
            news.set()
        else:
            problem = ""
            backoff.reset()
