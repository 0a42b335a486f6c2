"""Benchmark of one call to a runtime whose plugin runs in a process of its own, beside the same call in this process.

The plugin is the runtime in memory. The calls alternate in blocks, so that both see the same load of the machine.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path
from timeit import default_timer
from typing import Any

from kubeletx.api import Endpoint, Host, Runtime, SystemClock, UnitId
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeHost, FakeRuntime, endpoint, sandbox_spec, unit_spec

from . import fake_plugin
from .model import Result, Sizes, figure, now

BLOCK = 100
"""Calls of one kind in a row."""
GOAL_MS = 1.0


def make_runtime(endpoint: Endpoint, settings: Any, host: Host) -> FakeRuntime:
    """Make a runtime in memory whose store has the image of the measured unit."""
    runtime = fake_plugin.make_runtime(endpoint, settings, host)
    runtime.backend.add_image("busybox")
    return runtime


def isolated_call(sizes: Sizes) -> Result:
    """Measure `unit_status` of one unit, isolated and not."""
    return asyncio.run(_measure(sizes.isolated_calls))


async def _measure(calls: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="kubeletx-bench-") as directory:
        host = FakeHost(Path(directory), clock=SystemClock())
        at = endpoint("fake://isolated-call")
        direct = make_runtime(at, None, host)
        isolated = IsolatedRuntime(make_runtime, at, None, host)
        try:
            return await _compare(direct, isolated, calls)
        finally:
            await direct.close()
            await isolated.close()


async def _compare(direct: Runtime, isolated: Runtime, calls: int) -> Result:
    samples: dict[bool, list[float]] = {False: [], True: []}
    units = {False: await _started(direct), True: await _started(isolated)}
    for runtime, unit_id in ((direct, units[False]), (isolated, units[True])):
        await _timed(runtime, unit_id, BLOCK)  # the first calls make objects that later ones use again
    while len(samples[True]) < calls:
        samples[False] += await _timed(direct, units[False], min(BLOCK, calls))
        samples[True] += await _timed(isolated, units[True], min(BLOCK, calls))
    floor, p50 = statistics.median(samples[False]), statistics.median(samples[True])
    p99 = statistics.quantiles(samples[True], n=100)[98]
    return Result(
        name="isolated-call",
        figures=(
            figure("isolated call over a direct one, p50", "ms", p50 - floor, at_most=GOAL_MS, digits=4),
            figure("isolated call, p99", "ms", p99, digits=4),
        ),
        notes=(f"{len(samples[True])} calls of unit_status, one after the other",),
        measured_at=now(),
    )


async def _started(runtime: Runtime) -> UnitId:
    await runtime.open()
    spec = sandbox_spec()
    unit_id = await runtime.create_unit(await runtime.create_sandbox(spec), unit_spec(), spec)
    await runtime.start_unit(unit_id)
    return unit_id


async def _timed(runtime: Runtime, unit_id: UnitId, calls: int) -> list[float]:
    """Return the milliseconds of each of `calls` calls of `unit_status`."""
    found = []
    for _ in range(calls):
        began = default_timer()
        await runtime.unit_status(unit_id)
        found.append((default_timer() - began) * 1000)
    return found
