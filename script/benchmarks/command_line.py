"""Benchmark of the command line: whole processes, from their start to their end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from .lab import FIRST, BenchLab, wait_ready, wait_running
from .model import Result, Sizes, figure, now
from .standby_lab import echo_manifest, standby_agent

PROGRAM: Final = str(Path(sys.executable).with_name("kubeletx"))
POD: Final = "commands"
GOALS: Final = {"--help": 100.0, "get pods": 100.0, "exec true": 150.0, "pod activate": 150.0}
"""Most milliseconds of each command."""


def command_line(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure commands against an agent with one pod on a runtime that freezes; the floor is a Python that does nothing."""
    with standby_agent(bench) as agent:
        wait_ready(agent)
        bench.put_manifests({POD: echo_manifest(POD)})
        with bench.lab[FIRST].cri() as cri:
            wait_running(cri, [POD])
        agent.order("wait running", [POD])
        pod = f"{POD}-{agent.node_name}"
        program = (PROGRAM, f"--root-dir={agent.root_dir}")
        lines = {
            "--help": (PROGRAM, "--help"),
            "get pods": (*program, "get", "pods"),
            "exec true": (*program, "exec", pod, "--", "true"),
            "pod activate": (*program, "pod", "activate", pod),
        }
        times: dict[str, list[float]] = {label: [] for label in lines}
        floor = []
        for number in range(2 * sizes.single_runs + 1):
            for label, line in lines.items():
                if label == "pod activate":
                    _milliseconds(*program, "pod", "standby", pod)
                if number:  # the first run of each reads its files from the disk
                    times[label].append(_milliseconds(*line))
            floor.append(_milliseconds(sys.executable, "-c", "pass"))
    return Result(
        name="command-line",
        figures=tuple(
            figure(label, "ms", times[label], floor, at_most=goal, digits=0) for label, goal in GOALS.items()
        ),
        series={**times, "Python": floor},
        measured_at=now(),
    )


def _milliseconds(*line: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, start_new_session=True
    )
    return (time.perf_counter() - began) * 1000
