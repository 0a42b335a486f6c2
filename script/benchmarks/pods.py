"""Benchmarks of real pods: throughput and latency against the floor, and beside a runtime that hangs.

Floor and agent take turns, so that both have the same noise. While the floor runs, the agent is not running
(throughput) or stopped with SIGSTOP (one pod), so that it costs the floor nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec

from kubeletx_testing.lab import CriCalls, PrivateAgent

from .floor import CALLERS, measure
from .idle import cpu_seconds
from .lab import FIRST, SECOND, BenchLab, wait_ready, wait_running
from .model import Figure, Result, Sizes, figure, median, now, over_floor

AGENT = 0
"""Key of the agent's runs; those of the floor have the number of callers."""
SHARE_OF_FLOOR = 0.93
ONE_POD_MILLISECONDS = 15.0
FIRST_POD_MILLISECONDS = 200.0
AGENT_CPU_MILLISECONDS = 10.0
HANG_SHARE = 1.2


class Run(msgspec.Struct, frozen=True):
    """Times of one start of many pods, in seconds.

    `starts`: each container's start, sorted, after the beginning. `agent_cpu_seconds`: of the agent alone; 0 for the floor.
    """

    seconds: float
    cpu_seconds: float
    starts: list[float]
    agent_cpu_seconds: float = 0.0


def pods(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the throughput of many static pods. The floor is the number of callers with the best median."""
    figures: list[Figure] = []
    series: dict[str, list[float]] = {}
    for count in sizes.pods:
        runs = _runs(bench, count, sizes.runs)
        best = fastest(runs)
        rates = {side: [count / run.seconds for run in some] for side, some in runs.items()}
        series |= {f"floor {count}": rates[best], f"agent {count}": rates[AGENT]}
        series |= {f"{callers} callers {count}": rates[callers] for callers in CALLERS}
        for side, key in ((best, "floor"), (AGENT, "agent")):
            series[f"{key} starts {count}"] = sorted(runs[side], key=lambda run: run.seconds)[0].starts
        figures += start_figures("static pods", "pods", count, runs[AGENT], runs[best], SHARE_OF_FLOOR)
        own = [run.agent_cpu_seconds / count * 1000 for run in runs[AGENT]]
        label = f"CPU of the agent, for each of {count} pods"
        figures.append(figure(label, "ms", own, at_most=AGENT_CPU_MILLISECONDS))
    return Result(name="pods", figures=tuple(figures), series=series, measured_at=now())


def fastest(runs: Mapping[int, Sequence[Run]]) -> int:
    """Number of callers whose median time is the shortest."""
    return min(CALLERS, key=lambda callers: median([run.seconds for run in runs[callers]]))


def start_figures(
    what: str, short: str, count: int, ours: Sequence[Run], floor: Sequence[Run], share: float
) -> list[Figure]:
    """Figures of the throughput and, where it is known, of the CPU time for each pod, with the floor's beside them.

    `share`: of the floor's throughput, the goal.
    """
    rates = tuple(count / run.seconds for run in ours)
    rate, best = median(rates), median([count / run.seconds for run in floor])
    figures = [
        Figure(
            label=f"{count} {what}",
            value=rate,
            unit="pods/s",
            goal=f"≥ {share:g} x floor",
            is_met=rate / best >= share,
            floor=best,
            ratio=rate / best,
            samples=rates,
        )
    ]
    cpu, least = (median([run.cpu_seconds / count * 1000 for run in some]) for some in (ours, floor))
    if cpu:
        figures.append(figure(f"CPU of everything, for each of {count} {short}", "ms", cpu, least))
    return figures


def _runs(bench: BenchLab, count: int, times: int) -> dict[int, list[Run]]:
    """Start the pods `times` times by every side; returns the runs by number of callers, or `AGENT`.

    The sides alternate, each round in another order.
    """
    sides = [*CALLERS, AGENT]
    runs: dict[int, list[Run]] = {side: [] for side in sides}
    for number in range(times):
        for side in (*sides[number % len(sides) :], *sides[: number % len(sides)]):
            run = _agent_start(bench, count, number) if side == AGENT else floor_start(bench, count, side)
            runs[side].append(run)
            who = "agent" if side == AGENT else f"floor with {side} callers"
            print(
                f"   {count} pods: {who} {count / run.seconds:.2f}/s, CPU {run.cpu_seconds / count * 1000:.0f} ms each",
                flush=True,
            )
    return runs


def one_pod(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one pod on an idle agent, against the floor, and the first pod of agents that have just started."""
    floors, ours, firsts = [], [], []
    for number in range(sizes.runs):
        with bench.agent() as agent, bench.containerd.cri() as cri:
            wait_ready(agent)
            firsts.append(start_and_remove(bench, agent, cri, f"first-{number}"))
    with bench.agent() as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        assert agent.daemon is not None
        for number in range(sizes.single_runs + 1):
            agent.daemon.pause()
            floor = asyncio.run(measure(bench.containerd.endpoint, bench.floor_pods(1), 1))
            agent.daemon.resume()
            time.sleep(0.7)
            mine = start_and_remove(bench, agent, cri, f"one-{number}")
            if number:  # the first warms both
                floors.append(floor.seconds * 1000)
                ours.append(mine)
    return Result(
        name="one-pod",
        figures=(
            *over_floor("one pod", ours, floors, ONE_POD_MILLISECONDS),
            figure("the first pod after a start", "ms", firsts, at_most=FIRST_POD_MILLISECONDS),
        ),
        series={"floor": floors, "agent": ours},
        measured_at=now(),
    )


def hang(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one pod on a healthy runtime while the other one is stopped with SIGSTOP, and while it runs."""
    usual, beside = [], []
    endpoints = ";".join(f"container:{name}:{bench.lab[name].endpoint}" for name in (FIRST, SECOND))
    with bench.agent(endpoints=endpoints) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        bench.put_pods([f"other-{number}" for number in range(3)], runtime=SECOND)
        with bench.lab[SECOND].cri() as other:
            wait_running(other, [f"other-{number}" for number in range(3)])
        kept = {path.name for path in bench.manifests.iterdir()}
        start_and_remove(bench, agent, cri, "warm", kept)
        for turn in range(-(-sizes.single_runs // 3)):
            for number in range(min(3, sizes.single_runs)):
                usual.append(start_and_remove(bench, agent, cri, f"usual-{turn}-{number}", kept))
            bench.lab[SECOND].pause()
            try:
                for number in range(min(3, sizes.single_runs)):
                    beside.append(start_and_remove(bench, agent, cri, f"beside-{turn}-{number}", kept))
            finally:
                bench.lab[SECOND].resume()
            time.sleep(2)
        bench.remove_pods(agent)
    return Result(
        name="hang",
        figures=(
            figure(
                "one pod while the other runtime hangs",
                "ms",
                beside,
                usual,
                at_most_share=HANG_SHARE,
                digits=1,
            ),
        ),
        series={"usual": usual, "hanging": beside},
        notes=("floor: the same agent while both runtimes answer",),
        measured_at=now(),
    )


def floor_start(bench: BenchLab, count: int, callers: int) -> Run:
    """Start pods by bare calls, and measure as `_agent_start` does."""
    ready = bench.floor_pods(count)
    cpu = [bench.cpu_seconds()]
    floor = asyncio.run(
        measure(bench.containerd.endpoint, ready, callers, on_started=lambda: cpu.append(bench.cpu_seconds()))
    )
    return Run(floor.seconds, cpu[1] - cpu[0], floor.starts)


def _agent_start(bench: BenchLab, count: int, run: int) -> Run:
    """Start pods by a new agent; measures from the last rename of a manifest to each container's start."""
    names = [f"many-{run}-{number}" for number in range(count)]
    with bench.agent() as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        cpu, own = bench.cpu_seconds(), cpu_seconds(agent.pid)
        began_ns = bench.put_pods(names)
        started = wait_running(cri, names, pause_seconds=0.5)
        cpu, own = bench.cpu_seconds() - cpu, cpu_seconds(agent.pid) - own
        seconds = sorted((at - began_ns) / 1e9 for at in started.values())
        bench.remove_pods(agent)
    return Run(seconds[-1], cpu, seconds, own)


def start_and_remove(
    bench: BenchLab,
    agent: PrivateAgent,
    cri: CriCalls,
    name: str,
    kept: frozenset[str] | set[str] = frozenset(),
) -> float:
    """Start one pod and remove it; returns the milliseconds from the manifest's rename to the container's start.

    `kept`: names of manifest files that are not removed.
    """
    began_ns = bench.put_pods([name])
    started = wait_running(cri, [name], pause_seconds=0.1)
    for path in bench.manifests.glob("*.json"):
        if path.name not in kept:
            path.unlink()
    while agent.pod(name) is not None:
        time.sleep(0.1)
    time.sleep(0.3)
    return (max(started.values()) - began_ns) / 1e6
