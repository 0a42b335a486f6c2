"""Waits until a pod's worker has done what a command requested, and checks whether a command can act on the pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeletx.api import Conflict, Unavailable
from kubeletx.api.names import RUNTIME_NOT_READY
from kubeletx.pods import PodExecutor, PodWorker
from kubeletx.pods.workloads.overrides import overrides_of

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


def require_request(worker: PodWorker, request: str, doing: str) -> None:
    """Raise Conflict if the power state that a command requested is not the pod's stored request any more.

    `request`: the command's `PodOverrides.power`. `doing`: the command in words, such as ``standby pod default/web``.
    """
    present = overrides_of(worker.facts)
    if present is not None and present.power != request:
        by = (
            f"a later command, which requests {present.power}"
            if present.power
            else "a later command or an edit"
        )
        raise Conflict(f"cannot {doing}: the request was replaced by {by}")


def require_seen(services: PodExecutor, worker: PodWorker) -> None:
    """Raise Unavailable if the pod's runtime does not answer, or has not listed the pod yet.

    Does nothing for a pod that is not assigned to a runtime. Raises NotFound if the runtime was removed from the node.
    """
    if worker.facts.runtime is None:
        return
    handle = services.registry.get(worker.facts.runtime)
    if not handle.state.reachable:
        text = f"runtime {handle.name} does not answer: {handle.state.message}"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
    if worker.facts.snapshot is None:
        text = f"runtime {handle.name} has not reported pod {worker.desired.ref} yet; try again"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
