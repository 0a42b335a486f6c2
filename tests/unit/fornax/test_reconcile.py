"""Repairs at the start and after each period."""

from __future__ import annotations

import asyncio

from kubeletx.api import Unavailable
from kubeletx.fornax.reconcile import Reconciler
from kubeletx.testing import FakeClock


async def test_repairs_run_now_and_after_each_period_and_a_failure_delays_no_other() -> None:
    clock = FakeClock()
    found = [["apps/a", "apps/b"], [], ["apps/c"]]

    async def broken() -> list[str]:
        raise Unavailable("the runtime does not answer")

    async def repair() -> list[str]:
        return found.pop(0)

    ready = asyncio.Event()
    ready.set()
    reconciler = Reconciler({"ports": broken, "pods": repair}, ready=ready, clock=clock, period_seconds=60.0)
    task = asyncio.create_task(reconciler.run(), name="reconciler")
    await clock.run_for(1.0)
    assert (reconciler.repaired, reconciler.failed) == ({"ports": 0, "pods": 2}, {"ports": 1, "pods": 0})
    await clock.run_for(120.0)
    assert (reconciler.repaired["pods"], reconciler.failed["ports"]) == (3, 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
