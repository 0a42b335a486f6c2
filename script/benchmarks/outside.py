"""Benchmark from outside: manifests in, until the runtime lists the containers as running.

Every side starts the same pods on the same containerd, and the same observer ends the clock: it lists running
containers until all are there. Sides: a bare client without cgroups and labels (the floor), a bare client that
requests everything the agent requests, the agent, and a stock kubelet if ``--kubelet`` names one. They take turns,
each round in another order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from kubeletx.api import Resources
from kubeletx.cri import methods
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

from .floor import Calls, FloorPod, prepare, remove, start_pods
from .lab import BenchLab, wait_ready
from .model import Figure, Result, Sizes, figure, median, now
from .stock_kubelet import StockKubelet

BARE, FULL, AGENT, KUBELET = "bare calls", "bare calls with everything", "agent", "kubelet"
CALLERS: Final = 8
"""Concurrent calls of the bare clients; the agent has as many changing calls at once."""
SHARE_OF_BARE: Final = 0.8
SHARE_OF_KUBELET: Final = 1.15
LIST_SECONDS: Final = 120.0
LAST_SHARE: Final = 0.9
"""Share of running containers from which the observer lists often; before, it lists rarely, to cost little."""
RARE_SECONDS, OFTEN_SECONDS = 0.1, 0.02


class Seen(msgspec.Struct, frozen=True):
    """Times of one start of many pods.

    `seconds`: until all were listed as running. `cpu_seconds`: of everything that starts pods.
    """

    seconds: float
    cpu_seconds: float


def outside(bench: BenchLab, sizes: Sizes) -> Result:
    """Start pods by every side, and report the agent's rate and CPU time as ratios to the others."""
    sides: dict[str, Callable[[list[str]], Seen]] = {
        BARE: lambda names: _by_calls(
            bench, [without_cgroups_and_labels(pod) for pod in bench.floor_pods(len(names))]
        ),
        FULL: lambda names: _by_calls(bench, bench.floor_pods(len(names))),
        AGENT: lambda names: _by_agent(bench, names),
    }
    if sizes.kubelet is not None:
        kubelet = StockKubelet(sizes.kubelet, bench)
        sides[KUBELET] = lambda names: _by_kubelet(bench, kubelet, names)
    figures: list[Figure] = []
    series: dict[str, list[float]] = {}
    for count in sizes.pods:
        runs = _runs(sides, count, sizes.runs)
        series |= {f"{side} {count}": [count / run.seconds for run in some] for side, some in runs.items()}
        figures += outside_figures(count, runs)
    return Result(
        name="outside",
        figures=tuple(figures),
        series=series,
        notes=() if sizes.kubelet is not None else ("no kubelet was named with --kubelet",),
        measured_at=now(),
    )


def outside_figures(count: int, runs: Mapping[str, Sequence[Seen]]) -> list[Figure]:
    """Compare the agent with every other side, and the two bare clients with each other."""
    pairs = [
        (f"{count} pods from outside, against bare calls", AGENT, BARE, SHARE_OF_BARE),
        (f"{count} pods from outside, against bare calls with everything", AGENT, FULL, None),
        (f"{count} pods from outside, bare calls with everything", FULL, BARE, None),
        (f"{count} pods from outside, against a kubelet", AGENT, KUBELET, SHARE_OF_KUBELET),
    ]
    return [
        figure
        for label, ours, floor, share in pairs
        if floor in runs
        for figure in _compared(label, count, runs[ours], runs[floor], share)
    ]


def without_cgroups_and_labels(pod: FloorPod) -> FloorPod:
    """Copy the pod without cgroup parent, limits, labels and annotations."""
    sandbox = msgspec.structs.replace(
        pod.sandbox, labels={}, annotations={}, cgroup_parent="", resources=None
    )
    units = [
        msgspec.structs.replace(unit, labels={}, annotations={}, resources=Resources()) for unit in pod.units
    ]
    return FloorPod(sandbox, tuple(units))


def _compared(
    label: str, count: int, ours: Sequence[Seen], floor: Sequence[Seen], share: float | None
) -> list[Figure]:
    rates = tuple(count / run.seconds for run in ours)
    rate, floor_rate = median(rates), median([count / run.seconds for run in floor])
    figures = [
        Figure(
            label=label,
            value=rate,
            unit="pods/s",
            goal="" if share is None else f"≥ {share:g} x floor",
            is_met=None if share is None else rate / floor_rate >= share,
            floor=floor_rate,
            ratio=rate / floor_rate,
            samples=rates,
        )
    ]
    cpu, least = (median([run.cpu_seconds / count * 1000 for run in some]) for some in (ours, floor))
    if least:
        figures.append(figure(f"{label}: CPU of each", "ms", cpu, least))
    return figures


def _runs(sides: Mapping[str, Callable[[list[str]], Seen]], count: int, times: int) -> dict[str, list[Seen]]:
    names = list(sides)
    runs: dict[str, list[Seen]] = {name: [] for name in names}
    for number in range(times):
        first = number % len(names)
        for side in (*names[first:], *names[:first]):
            run = sides[side]([f"outside-{number}-{pod}" for pod in range(count)])
            runs[side].append(run)
            cpu = run.cpu_seconds / count * 1000
            print(f"   {count} pods: {side} {count / run.seconds:.2f}/s, CPU {cpu:.0f} ms each", flush=True)
    return runs


def _by_calls(bench: BenchLab, pods: Sequence[FloorPod]) -> Seen:
    async def run() -> Seen:
        async with _observer(bench) as calls:
            prepared = [prepare(pod, marked=False) for pod in pods]
            clock = _Clock(bench)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(start_pods(calls, prepared, CALLERS), name="bare calls")
                    seen = group.create_task(_until_running(calls, len(pods), clock), name="observer")
                return seen.result()
            finally:
                await remove(calls, marked=False)

    return asyncio.run(run())


def _by_agent(bench: BenchLab, names: Sequence[str]) -> Seen:
    with bench.agent() as agent:
        wait_ready(agent)
        seen = asyncio.run(_put_and_wait(bench, names))
        bench.remove_pods(agent)
    return seen


def _by_kubelet(bench: BenchLab, kubelet: StockKubelet, names: Sequence[str]) -> Seen:
    with kubelet:
        seen = asyncio.run(_put_and_wait(bench, names))
        kubelet.remove_pods()
    return seen


async def _put_and_wait(bench: BenchLab, names: Sequence[str]) -> Seen:
    async with _observer(bench) as calls:
        clock = _Clock(bench)
        bench.put_pods(names)
        return await _until_running(calls, len(names), clock)


class _Clock:
    """Measures wall-clock and CPU time from its creation to `read`."""

    def __init__(self, bench: BenchLab) -> None:
        self._bench = bench
        self._cpu = bench.cpu_seconds()
        self._began = time.monotonic()

    def read(self) -> Seen:
        return Seen(time.monotonic() - self._began, self._bench.cpu_seconds() - self._cpu)


@asynccontextmanager
async def _observer(bench: BenchLab) -> AsyncIterator[Calls]:
    """Context manager: connects to the containerd; fails if a container is running there."""
    calls = Calls(bench.containerd.endpoint)
    try:
        assert await _running(calls) == 0, "containers of an earlier run are left"
        yield calls
    finally:
        await calls.channel.close(grace=None)


async def _until_running(calls: Calls, count: int, clock: _Clock) -> Seen:
    """Wait until the runtime lists `count` running containers; returns the clock's times."""
    async with asyncio.timeout(LIST_SECONDS):
        while (running := await _running(calls)) < count:  # noqa: ASYNC110 - the list is what is measured
            await asyncio.sleep(OFTEN_SECONDS if running >= LAST_SHARE * count else RARE_SECONDS)
    return clock.read()


async def _running(calls: Calls) -> int:
    state = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    answer = await calls.prepare(methods.LIST_CONTAINERS)(
        pb.ListContainersRequest(filter=pb.ContainerFilter(state=state))
    )
    return len(answer.containers)
