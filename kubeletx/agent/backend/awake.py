"""`kept_awake`: keeps a pod running while a command, an attached terminal or a forwarded connection uses it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from functools import partial

from kubeletx.api import Conflict, TimedOut
from kubeletx.pods import PodExecutor, PodWorker
from kubeletx.pods.workloads.power import STANDING_BY, Power
from kubeletx.pods.workloads.standby.facts import standby_of
from kubeletx.pods.workloads.table import workload_of

from .waiting import wait_for_worker

THAW_SECONDS = 30.0
"""Longest wait for the thaw of a pod before a command in it fails."""


@contextlib.asynccontextmanager
async def kept_awake(
    services: PodExecutor, worker: PodWorker, *, may_thaw: bool, delay_seconds: float = 0.0
) -> AsyncIterator[None]:
    """Context in which the pod runs: a frozen pod is thawed first, and may be frozen again `delay_seconds` after the end.

    The request is only in memory. It has no effect on pods that cannot be frozen, on machines that ``kubeletx vm`` or
    powerSpec paused, and on machines that paused themselves. `may_thaw` False: a frozen pod stays frozen, and
    Conflict is raised. Raises Conflict if the runtime cannot thaw a container, TimedOut after `THAW_SECONDS`.
    """
    workload = workload_of(worker.facts)
    if not workload.can_standby(worker.facts):
        yield
        return
    ref = worker.desired.ref
    rests = bool(workload.next_units(worker.desired, worker.facts, Power.RUNNING))
    if not may_thaw:
        if rests:
            raise Conflict(f"pod {ref} is standby; wake it with 'kubeletx pod activate'")
        yield
        return
    may_freeze = rests or workload.wanted_power(worker.desired, worker.facts) in STANDING_BY
    owner = f"stream-{uuid.uuid4().hex}"
    worker.ask_power(Power.RUNNING, owner)
    try:
        if may_freeze:
            await _wait_awake(services, worker)
        yield
    finally:
        if delay_seconds:
            services.call_at(
                services.clock.monotonic() + delay_seconds, partial(worker.ask_power, None, owner)
            )
        else:
            worker.ask_power(None, owner)


async def _wait_awake(services: PodExecutor, worker: PodWorker) -> None:
    """Wait until each container runs and no call that could freeze one is in flight."""
    ref, before = worker.desired.ref, standby_of(worker.facts).thaw_failures

    def is_awake() -> bool:
        for name, failure in standby_of(worker.facts).thaw_failures.items():
            if before.get(name) != failure:
                raise Conflict(f"cannot thaw pod {ref}: {failure.message}", reason=failure.reason)
        workload = workload_of(worker.facts)
        resting = workload.next_units(worker.desired, worker.facts, Power.RUNNING)
        return not (worker.is_unit_changing or resting)

    if not await wait_for_worker(services, worker, is_awake, THAW_SECONDS, what="pod"):
        raise TimedOut(f"pod {ref} is standby and did not thaw within {THAW_SECONDS:g}s")
