"""Benchmark of the guardian: from the start of its process to the first tick, and its costs at rest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .idle import cpu_during, resident_mib, rest_figure
from .model import Figure, Result, Sizes, figure, now

FIRST_TICK_MS = 150.0
RESIDENT_MIB = 25.0
CPU_SECONDS_PER_MINUTE = 0.1


def health(sizes: Sizes) -> Result:
    """Measure first ticks, then memory and CPU time of a guardian with simulated slots and a tick of 10 s."""
    starts, bare = [], []
    for _ in range(sizes.start_runs):
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-I", "-c", "pass"], check=True, stdin=subprocess.DEVNULL, start_new_session=True
        )
        bare.append((time.monotonic() - began) * 1000)
        with _guardian() as (_, milliseconds):
            starts.append(milliseconds)
    with _guardian() as (pid, _):
        cpu, seconds = cpu_during(pid, sizes.idle_seconds)
        memory = resident_mib(pid)
    figures: tuple[Figure, ...] = (
        figure("start of the guardian to its first tick", "ms", starts, bare, at_most=FIRST_TICK_MS),
        figure("resident memory of the guardian", "MiB", memory, at_most=RESIDENT_MIB, digits=1),
        rest_figure("the guardian", cpu, seconds, CPU_SECONDS_PER_MINUTE),
    )
    return Result(
        name="health",
        figures=figures,
        notes=("floor: the same Python with nothing to do",),
        measured_at=now(),
    )


@contextmanager
def _guardian() -> Iterator[tuple[int, float]]:
    """Start a guardian; yields its process ID and the milliseconds to the message that it sends after the first tick."""
    with (
        tempfile.TemporaryDirectory() as base,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(f"{base}/notify")
        manager.settimeout(30)
        argv = [sys.executable, "-I", "-m", "kubeletx.health", "--slots", f"file:{base}/slots"]
        began = time.monotonic()
        process = subprocess.Popen(
            [*argv, "--run-dir", f"{base}/run", "--persist-dir", f"{base}/persist"],
            env={**os.environ, "NOTIFY_SOCKET": f"{base}/notify"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            manager.recv(100)
            yield process.pid, (time.monotonic() - began) * 1000
        finally:
            process.terminate()
            process.wait(30)
