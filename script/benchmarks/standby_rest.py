"""Benchmarks of an agent with many frozen pods: CPU time and memory at rest, and a wake among them.

The pods have the annotation that freezes them once they are ready. They use the node's network, so that they start
faster and need no addresses of the pod network. Only pods that are woken are in the pod network.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from kubeletx_testing.lab import CriCalls

from .idle import cpu_during, resident_mib, rest_figure
from .lab import BenchLab, wait_ready, wait_running, wait_until
from .model import Figure, Result, Sizes, figure, median, now, percentile
from .standby import LAST_WAKE_MILLISECONDS, sleeping
from .standby_lab import StandbyAgent, addresses, connections, echo_manifest, receive, standby_agent

CPU_SECONDS_PER_MINUTE: Final = 0.2
RESIDENT_MB: Final = 120.0
SETTLE_SECONDS: Final = 15.0
START_SECONDS: Final = 600.0
RUNNING_PODS: Final = 20
WOKEN_PODS: Final = 10
_MB_PER_MIB: Final = 1.048576


def standby_idle(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure CPU time and memory of the agent while all its pods are frozen."""
    names = [f"rest-{number}" for number in range(sizes.standby_pods)]
    with standby_agent(bench) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        bench.put_manifests({name: sleeping(name, standby="standby") for name in names})
        _wait_frozen(agent, cri, names)
        figures = _rest(agent, f"{len(names)} standby pods", sizes, has_goals=True)
        bench.remove_pods(agent)
    return Result(name="standby-idle", figures=tuple(figures), measured_at=now())


def standby_500(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure an agent with the greatest number of pods, most of them frozen: at rest, and wakes among them."""
    few = max(sizes.most_pods // 10, 1)
    running = [f"run-{number}" for number in range(min(RUNNING_PODS, few))]
    woken = [f"wake-{number}" for number in range(min(WOKEN_PODS, few))]
    others = [f"rest-{number}" for number in range(sizes.most_pods - len(running) - len(woken))]
    frozen = [*woken, *others]
    with standby_agent(bench) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        available = _available_mib()
        began = time.monotonic()
        bench.put_manifests(
            {
                **{name: echo_manifest(name) for name in woken},
                **{name: sleeping(name) for name in running},
                **{name: sleeping(name, standby="standby") for name in others},
            }
        )
        wait_running(cri, [*woken, *running, *others], pause_seconds=1.0, seconds=START_SECONDS)
        agent.order("wait running", [*woken, *running])
        with connections(addresses(agent, woken)) as open_connections:
            agent.order("standby", woken)
            agent.order("wait standby", frozen)
            seconds = time.monotonic() - began
            each = (available - _available_mib()) / sizes.most_pods
            what = f"{len(frozen)} standby and {len(running)} running pods"
            figures = _rest(agent, what, sizes, has_goals=False)
            times = []
            for number in range(sizes.wakes):
                name = woken[number % len(woken)]
                open_connections[name].sendall(b".")
                agent.begin("running", [name])
                answered = receive(open_connections[name])
                times.append((answered - agent.end().began_ns) / 1e6)
                agent.order("wait running", [name])
                agent.order("standby", [name])
                agent.order("wait standby", [name])
        agent.order("running", woken)
        bench.remove_pods(agent)
    p99 = percentile(times, 0.99)
    return Result(
        name="standby-500",
        figures=(
            *figures,
            figure(f"wake by freezer among {what}, p50", "ms", median(times)),
            figure(f"wake by freezer among {what}, p99", "ms", p99, at_most=LAST_WAKE_MILLISECONDS),
            figure(f"start of {what}, until all are frozen", "s", seconds, digits=1),
            figure(
                f"memory of the machine for each of {sizes.most_pods} pods, shims included",
                "MiB",
                each,
                digits=1,
            ),
        ),
        series={"wakes": [round(elapsed, 4) for elapsed in times]},
        measured_at=now(),
    )


def _wait_frozen(agent: StandbyAgent, cri: CriCalls, names: list[str]) -> None:
    wait_running(cri, names, pause_seconds=1.0, seconds=START_SECONDS)
    wait_until(lambda: len(agent.pods()) >= len(names), "pods", pause_seconds=0.5)
    agent.order("wait standby", names)


def _rest(agent: StandbyAgent, what: str, sizes: Sizes, *, has_goals: bool) -> list[Figure]:
    """Wait until the agent is at rest, and measure it. `has_goals`: the goals apply to this number of pods."""
    time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
    cpu, seconds = cpu_during(agent.pid, min(sizes.idle_seconds, 60.0))
    memory = round(resident_mib(agent.pid) * _MB_PER_MIB, 1)
    rest = rest_figure(what, cpu, seconds, CPU_SECONDS_PER_MINUTE)
    if not has_goals:
        rest = figure(rest.label, rest.unit, rest.value)
    return [
        rest,
        Figure(
            label=f"resident memory with {what}",
            value=memory,
            unit="MB",
            goal=f"≤ {RESIDENT_MB:g}" if has_goals else "",
            is_met=memory <= RESIDENT_MB if has_goals else None,
        ),
    ]


def _available_mib() -> float:
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert match is not None
    return int(match[1]) / 1024
