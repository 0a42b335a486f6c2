"""`wait_for_worker`: waits until a pod's worker has done what a command requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeletx.api import Conflict
from kubeletx.pods import PodExecutor, PodWorker

LOOK_SECONDS = 0.1
"""Interval at which the condition is checked, in addition to a check after each new pod status."""


async def wait_for_worker(
    services: PodExecutor, worker: PodWorker, is_done: Callable[[], bool], seconds: float, *, what: str
) -> bool:
    """Wait until `is_done()` returns True, then return True; return False after `seconds`.

    Raises Conflict when the pod is deleted or has ended. `what`: pod or machine, for the message.
    """
    clock = services.clock
    news = asyncio.Event()
    stop = services.board.subscribe(lambda *_: news.set())
    ends = clock.monotonic() + seconds
    try:
        while not is_done():
            if worker.is_done or worker.desired.is_ending:
                raise Conflict(f"{what} {worker.desired.ref} is ending")
            if clock.monotonic() >= ends:
                return False
            news.clear()
            cancel = clock.call_at(min(ends, clock.monotonic() + LOOK_SECONDS), news.set)
            try:
                await news.wait()
            finally:
                cancel()
    finally:
        stop()
    return True
