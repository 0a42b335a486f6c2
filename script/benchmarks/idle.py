"""Benchmarks of an agent's costs: at rest with many pods, and at its start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kubeletx.linux.processes import TICKS_PER_SECOND, read_stat
from kubeletx_testing.lab import PrivateAgent
from kubeletx_testing.lab.process import run

from .lab import BenchLab, is_open, wait_ready, wait_running
from .model import Figure, Result, Sizes, figure, now

CPU_SECONDS_PER_MINUTE = 0.5
RESIDENT_MIB = 80.0
RESIDENT_WITHOUT_PODS_MIB = 70.0
START_SECONDS = 1.0
HELP_SECONDS = 0.3
SETTLE_SECONDS = 20.0
BARE_PYTHON = "floor of starts: the same Python with nothing to do"


def idle(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure CPU time and memory of the agent with idle pods, and how long it takes to start with them."""
    names = [f"idle-{number}" for number in range(sizes.idle_pods)]
    agent = bench.agent()
    with agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        before = resident_mib(agent.pid)
        bench.put_pods(names)
        wait_running(cri, names, pause_seconds=0.5)
        time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
        cpu, seconds = cpu_during(agent.pid, sizes.idle_seconds)
        memory = resident_mib(agent.pid)
        threads = int(status_of(agent.pid, "Threads"))
        agent.stop()
        agent.start()
        wait_ready(agent)
        time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
        after_restart = resident_mib(agent.pid)
        agent.stop()
        bare, starts = _compared_starts(agent, sizes.start_runs)
        agent.start()
        bench.remove_pods(agent)
    count = sizes.idle_pods
    return Result(
        name="idle",
        figures=(
            rest_figure(f"{count} pods", cpu, seconds, CPU_SECONDS_PER_MINUTE),
            figure(f"resident memory with {count} pods", "MiB", memory, at_most=RESIDENT_MIB, digits=1),
            figure(f"the same after a restart with {count} pods", "MiB", after_restart, digits=1),
            figure(
                "resident memory without pods", "MiB", before, at_most=RESIDENT_WITHOUT_PODS_MIB, digits=1
            ),
            start_figure(f"start to serving, {count} pods running", starts, bare, START_SECONDS),
        ),
        notes=(f"{threads} threads", BARE_PYTHON),
        series={"start with pods": starts},
        measured_at=now(),
    )


def start(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the time from the agent's start to the first answer of its admin socket, and that of ``--help``."""
    agent = bench.agent(flags=())
    bare, starts = _compared_starts(agent, sizes.start_runs)
    agent.remove_files()
    helps = [_help_seconds() for _ in range(sizes.start_runs)]
    return Result(
        name="start",
        figures=(
            start_figure("start to serving, no pods", starts, bare, START_SECONDS),
            start_figure("kubeletx --help", helps, bare, HELP_SECONDS),
        ),
        notes=(BARE_PYTHON,),
        measured_at=now(),
    )


def start_figure(label: str, ours: Sequence[float], bare: Sequence[float], allowed: float) -> Figure:
    """Figure for the seconds of a start.

    `bare`: seconds of a Python that does nothing, the floor. `allowed`: the goal.
    """
    return figure(label, "s", ours, bare, at_most=allowed)


def resident_mib(pid: int) -> float:
    """Resident memory of the process (VmRSS) in MiB."""
    return int(status_of(pid, "VmRSS").split()[0]) / 1024


def status_of(pid: int, key: str) -> str:
    """Value of one line of ``/proc/PID/status``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.strip()
    raise KeyError(key)


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, and of its children that it has waited for."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return (stat.cpu_ticks + stat.children_ticks) / TICKS_PER_SECOND


def rest_figure(what: str, cpu: float, seconds: float, allowed: float) -> Figure:
    """Figure for CPU time at rest: the agent used `cpu` seconds in `seconds`, with `what` on it.

    `allowed`: the goal, in CPU seconds per minute.
    """
    per_minute = round(cpu * 60 / seconds, 3)
    return figure(f"CPU at rest with {what}", "s/min", per_minute, at_most=allowed)


def cpu_during(pid: int, seconds: float) -> tuple[float, float]:
    """Wait for `seconds`; returns the CPU seconds that the process used, and the seconds that really passed."""
    began, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return cpu_seconds(pid) - before, time.monotonic() - began


def _compared_starts(agent: PrivateAgent, runs: int) -> tuple[list[float], list[float]]:
    """Start bare Python and the agent in turns; returns the seconds of each."""
    turns = [(_seconds_of([sys.executable, "-c", "pass"]), start_seconds(agent)) for _ in range(runs)]
    return [bare for bare, _ in turns], [ours for _, ours in turns]


def start_seconds(agent: PrivateAgent) -> float:
    """Start the agent, and stop it after the first answer of its admin socket; return the seconds until then."""
    agent.socket_path.unlink(missing_ok=True)
    began = time.monotonic()
    process = subprocess.Popen(
        agent.argv(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not is_open(agent.socket_path):
            if process.poll() is not None or time.monotonic() > began + 30:
                raise RuntimeError("the agent did not start")
            time.sleep(0.005)
        agent.get("/version")
        return time.monotonic() - began
    finally:
        process.terminate()
        process.wait(30)


def _help_seconds() -> float:
    return _seconds_of([str(Path(sys.executable).with_name("kubeletx")), "--help"])


def _seconds_of(argv: list[str]) -> float:
    began = time.monotonic()
    run(*argv)
    return time.monotonic() - began
