"""Metrics ``process_*``: usage of the agent's own process, named as in Prometheus' client libraries. Reads /proc."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from .exposition import Family


def process_metrics(proc: Path = Path("/proc")) -> Iterator[Family]:
    """Yield the metrics of this process; none if a file cannot be read."""
    for name, kind, text, value in _values(proc):
        family = Family(name, kind, text)
        family.add("", value)
        yield family


def _values(proc: Path) -> Iterator[tuple[str, str, str, float]]:
    try:
        # The name of the program, in brackets, may hold blanks.
        words = (proc / "self/stat").read_text().rpartition(")")[2].split()
        booted = next(
            float(line.split()[1])
            for line in (proc / "stat").read_text().split("\n")
            if line.startswith("btime ")
        )
        descriptors = len(os.listdir(proc / "self/fd"))
    except (OSError, StopIteration):
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", float(words[20])
    resident = float(words[21]) * resource.getpagesize()
    yield "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident
    started = booted + float(words[19]) / ticks
    yield "process_start_time_seconds", "gauge", "Start time since unix epoch in seconds.", started
    spent = (float(words[11]) + float(words[12])) / ticks
    yield "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", spent
    yield "process_open_fds", "gauge", "Number of open file descriptors.", float(descriptors)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_max_fds", "gauge", "Maximum number of open file descriptors.", float(limit)
