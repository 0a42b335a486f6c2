"""Benchmarks of one pod on containerd beside a runtime whose plugin floods events, or hangs in its calls.

One agent has the pod's runtime all the time. The neighbour is added and removed again in turns, so that the usual start
and the one beside it see the same load of the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kubeletx_testing.lab import CriCalls, PrivateAgent
from kubeletx_testing.lab.process import LabError

from .lab import ROOT, BenchLab, wait_ready, wait_until
from .model import Figure, Result, Sizes, figure, now
from .pods import start_and_remove

SHARE_OF_USUAL: Final = 1.2
TURN: Final = 3
"""Starts of one side in a row."""
ROUNDS: Final = 2
"""Factor of the number of starts: beside a neighbour, on two processors, they differ more than alone."""
ISOLATIONS: Final = ("none", "process")
BAD: Final = "kubeletx_testing.bad_plugins"
PLUGINS: Final = {
    "floods-events": f"{BAD}.floods_events",
    "steady-flood": "script.benchmarks.neighbour_plugin",
    "swallows-cancellation": f"{BAD}.swallows_cancellation",
}
"""Module of each runtime kind; the agent finds them as a distribution that is not of kubeletx."""
NAME: Final = "neighbour"
READY_SECONDS: Final = 5.0
"""Time for the start of a neighbour; one that hangs need not become ready."""


def flooding_neighbour(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one pod beside 50,000 events a second, whose stream the agent closes, and beside 950, which it reads."""
    whats = {
        "floods-events": "one pod beside 50,000 events a second",
        "steady-flood": "one pod beside 950 events a second",
    }
    return _beside(bench, sizes, "flooding-neighbour", whats)


def hanging_neighbour(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one pod beside a runtime whose lists never return, not even when they are cancelled."""
    whats = {"swallows-cancellation": "one pod beside a plugin that hangs"}
    return _beside(bench, sizes, "hanging-neighbour", whats)


def _beside(bench: BenchLab, sizes: Sizes, name: str, whats: Mapping[str, str]) -> Result:
    figures: list[Figure] = []
    series: dict[str, list[float]] = {}
    with bench.agent(env=_environment(bench.lab.base_dir)) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        start_and_remove(bench, agent, cri, "warm")
        for kind, what in whats.items():
            for isolation in ISOLATIONS:
                usual, beside = _compared(
                    bench, agent, cri, f"{kind}&isolation={isolation}", ROUNDS * sizes.single_runs
                )
                label = f"{what}, isolation {isolation}"
                figures.append(figure(label, "ms", beside, usual, at_most_share=SHARE_OF_USUAL, digits=1))
                series |= {f"usual {kind} {isolation}": usual, f"{kind} {isolation}": beside}
    return Result(
        name=name,
        figures=tuple(figures),
        series=series,
        notes=("floor: the same agent without that runtime",),
        measured_at=now(),
    )


def _compared(
    bench: BenchLab, agent: PrivateAgent, cri: CriCalls, plugin: str, runs: int
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of starts without and with the neighbour. `plugin`: kind and isolation, for its URL."""
    usual: list[float] = []
    beside: list[float] = []

    def start(found: list[float]) -> None:
        for _ in range(min(TURN, runs)):
            found.append(start_and_remove(bench, agent, cri, f"n-{len(usual)}-{len(beside)}"))

    while len(usual) < runs:
        start(usual)
        with _neighbour(agent, plugin):
            start(beside)
    return usual, beside


@contextmanager
def _neighbour(agent: PrivateAgent, plugin: str) -> Iterator[None]:
    scheme = "steady" if plugin.startswith("steady") else "bad"
    _run(agent, "runtime", "add", f"container:{NAME}:{scheme}://x?plugin={plugin}")
    try:
        with suppress(LabError):
            wait_until(_is_ready(agent), f"ready {NAME}", seconds=READY_SECONDS)
        yield
    finally:
        _run(agent, "runtime", "remove", NAME, "--force")
        time.sleep(1)


def _is_ready(agent: PrivateAgent) -> Callable[[], bool]:
    return lambda: any(runtime.name == NAME and runtime.status == "Ready" for runtime in agent.runtimes())


def _run(agent: PrivateAgent, *arguments: str) -> None:
    done = agent.cli(*arguments)
    if done.returncode:
        raise LabError(f"kubeletx {' '.join(arguments)}: {done.stderr}")


def _environment(base_dir: Path) -> dict[str, str]:
    """Install the plugins as a distribution below `base_dir`; returns the environment in which an agent finds it."""
    info = base_dir / "neighbours" / "bench_neighbours-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-neighbours\nVersion: 1.0\n")
    lines = [f"{kind} = {module}" for kind, module in PLUGINS.items()]
    (info / "entry_points.txt").write_text("\n".join(["[kubeletx]", *lines, ""]))
    return {"PYTHONPATH": os.pathsep.join((str(info.parent), str(ROOT)))}
