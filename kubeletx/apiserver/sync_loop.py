"""`run_sync_loop`: keeps one object of the API server equal to this node's state, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from kubeletx.api import Clock, KubeletxError
from kubeletx.api.backoff import Backoff
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.errors import least_seconds

log = structlog.get_logger(__name__)


async def run_sync_loop(
    news: asyncio.Event,
    sync: Callable[[], Awaitable[None]],
    client: KubeClient,
    clock: Clock,
    *,
    what: str,
    backoff: Backoff,
) -> None:
    """Call `sync` each time `news` is set, and again with back-off after each failure, until cancelled.

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
