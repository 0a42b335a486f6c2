"""Benchmark of the guards: the CPU time that a runtime's call gate adds to one pod start.

The gate is what every call to a plugin passes: deadline, limits, counters, translation of exceptions, checks of answers.
Its share of a pod start is about a hundredth, less than one start differs from the next, so two agents with and without
guards would have to be compared over thousands of starts. Instead an agent on the real containerd starts pods, which
shows its CPU time and its calls for each of them; the price of each of these calls is that of the same gate, called in
this process with an answer of the same kind, less the price of the bare coroutine. Both kinds of calls alternate.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from kubeletx.api import EventKind, PodUid, RuntimeEvent, SystemClock, UnitId
from kubeletx.runtimes.handles.calls import CallClass, CallGate
from kubeletx.runtimes.handles.checked import wrong_event
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.testing import FakeBackend, FakeRuntime, sandbox_spec, unit_spec
from kubeletx_testing.lab import PrivateAgent

from .lab import FIRST, BenchLab, wait_ready, wait_running
from .model import Figure, Result, Sizes, now

GOAL_SHARE: Final = 0.03
SETTLE_SECONDS: Final = 1.0
"""Time after a container's start in which the agent reads and reports it; part of the pod's start."""
EVENTS: Final = 6
"""Events of one pod start; no metric counts them."""
BLOCKS, BLOCK = 30, 200
_COUNT: Final = re.compile(
    r'^kubelet_runtime_operations_total\{operation_type="([^"]+)",runtime="' + FIRST + r'"\} ([0-9.e+]+)$',
    re.M,
)

Answers = Mapping[str, tuple[Any, str | None]]
"""By method: an answer of it, and the id that the call is about, or None."""


def guarded_start(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure CPU time and calls of pod starts, and the price of the gate for these calls."""
    with bench.agent() as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        names = [f"guarded-{number}" for number in range(sizes.single_runs)]
        starts, calls = [], Counter[str]()
        for name in names:
            before, cpu = _calls(agent), cpu_nanoseconds(agent.pid)
            bench.put_pods([name])
            wait_running(cri, [name], pause_seconds=0.1)
            time.sleep(SETTLE_SECONDS)
            starts.append((cpu_nanoseconds(agent.pid) - cpu) / 1e6)
            calls += _calls(agent) - before
        bench.remove_pods(agent)
    each = {method: count / len(names) for method, count in calls.items()}
    own, other = (asyncio.run(_milliseconds(each, abandons=abandons)) for abandons in (False, True))
    return Result(
        name="guarded-start",
        figures=(
            _figure("guards of one pod start, containerd", own, starts),
            _figure("guards of one pod start, another's plugin in the agent's process", other, starts),
        ),
        series={"start cpu ms": starts},
        notes=(
            "floor: CPU time of the agent for the start",
            "calls: " + ", ".join(f"{method} {count:.3g}" for method, count in sorted(each.items())),
        ),
        measured_at=now(),
    )


def cpu_nanoseconds(pid: int) -> int:
    """CPU time of the process's present threads; finer than the ticks of ``/proc/PID/stat``."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def _figure(label: str, milliseconds: float, starts: list[float]) -> Figure:
    start = median(starts)
    return Figure(
        label=label,
        value=round(milliseconds, 4),
        unit="ms",
        goal=f"≤ {GOAL_SHARE:g} x CPU of the agent",
        is_met=milliseconds <= GOAL_SHARE * start,
        floor=round(start, 4),
        ratio=milliseconds / start,
    )


def _calls(agent: PrivateAgent) -> Counter[str]:
    counts = _COUNT.findall(agent.get("/metrics").decode())
    return Counter({method: round(float(count)) for method, count in counts})


async def _milliseconds(each: Mapping[str, float], *, abandons: bool) -> float:
    """Return the CPU milliseconds that the gate adds to these calls of one pod start, by method, and its events.

    `abandons`: each call is a task of its own, as with plugins that are not of this repository.
    """
    gate = CallGate("bench", Limits(), abandons=abandons)
    answers = await _answers()
    total = EVENTS * await _event_microseconds(gate)
    for method, count in each.items():
        total += count * await _call_microseconds(gate, method, *answers.get(method, (None, None)))
    return total / 1000


async def _call_microseconds(gate: CallGate, method: str, answer: Any, asked: str | None) -> float:
    async def bare() -> Any:
        return answer

    return await _difference(bare, lambda: gate.call(method, CallClass.QUERY, 30.0, bare, asked))


async def _event_microseconds(gate: CallGate) -> float:
    event = RuntimeEvent(kind=EventKind.STARTED, unit_id=UnitId("a" * 64), uid=PodUid("b" * 36))

    async def events() -> Any:
        while True:
            yield event

    bare, guarded = events(), gate.guarded.stream("events", events, wrong_event)
    try:
        return await _difference(bare.__anext__, guarded.__anext__)
    finally:
        await bare.aclose()
        await guarded.aclose()


async def _difference(bare: Callable[[], Awaitable[Any]], guarded: Callable[[], Awaitable[Any]]) -> float:
    """Return by how many CPU microseconds a call of `guarded` is dearer than one of `bare`."""
    found = []
    for _ in range(BLOCKS):
        floor = await _block(bare)
        found.append(await _block(guarded) - floor)
    return median(found)


async def _block(call: Callable[[], Awaitable[Any]]) -> float:
    began = time.thread_time_ns()
    for _ in range(BLOCK):
        await call()
    return (time.thread_time_ns() - began) / BLOCK / 1000


async def _answers() -> Answers:
    """Return answers about one pod; methods without one return None, which is not checked."""
    clock = SystemClock()
    runtime = FakeRuntime(clock=clock, backend=FakeBackend(clock=clock))
    runtime.backend.add_image("busybox")
    spec, unit = sandbox_spec(), unit_spec()
    sandbox_id = await runtime.create_sandbox(spec)
    unit_id = await runtime.create_unit(sandbox_id, unit, spec)
    await runtime.start_unit(unit_id)
    return {
        "create_sandbox": (sandbox_id, None),
        "create_unit": (unit_id, None),
        "sandbox_status": (await runtime.sandbox_status(sandbox_id), sandbox_id),
        "unit_status": (await runtime.unit_status(unit_id), unit_id),
        "list_sandboxes": (await runtime.list_sandboxes({}), None),
        "list_units": (await runtime.list_units({}), None),
        "list_unit_stats": (await runtime.list_unit_stats({}), None),
        "find_image": (await runtime.find_image(unit.image), None),
        "health": (await runtime.health(), None),
        "version": (await runtime.version(), None),
    }
