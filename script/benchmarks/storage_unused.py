"""Benchmark of plugin flexvolume in an agent without volumes of drivers: what it adds to memory, threads and start.

Agents with and without the plugin are started in turns, on the same containerd; the order changes each time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from .idle import resident_mib, start_seconds, status_of
from .lab import BenchLab, wait_ready
from .model import Result, Sizes, figure, median, now

WITH: Final[tuple[str, ...]] = ()
WITHOUT: Final = ("--disable-plugin=flexvolume",)
MEMORY_KIB: Final = 1024.0
START_MS: Final = 20.0


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of one agent without pods. `watches`: open inotify descriptors."""

    start_seconds: float
    resident_mib: float
    threads: int
    watches: int


def storage_unused(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure starts and memory of agents with and without the plugin."""
    without: list[Costs] = []
    having: list[Costs] = []
    for number in range(sizes.start_runs):
        sides = [(without, WITHOUT), (having, WITH)]
        for found, flags in reversed(sides) if number % 2 else sides:  # the first may find colder caches
            found.append(_costs(bench, flags))
    return unused_result(without, having)


def unused_result(without: list[Costs], having: list[Costs]) -> Result:
    """Figures of agents without and with the plugin, in turns."""
    memory = [
        (ours.resident_mib - bare.resident_mib) * 1024 for bare, ours in zip(without, having, strict=True)
    ]
    start = [
        (ours.start_seconds - bare.start_seconds) * 1000 for bare, ours in zip(without, having, strict=True)
    ]
    return Result(
        name="storage-unused",
        figures=(
            figure(
                "memory of plugin flexvolume without volumes", "KiB", memory, at_most=MEMORY_KIB, digits=0
            ),
            figure("plugin flexvolume at the start of the agent", "ms", start, at_most=START_MS, digits=1),
        ),
        notes=tuple(
            f"{name}: {sorted({cost.threads for cost in side})} threads, {sorted({cost.watches for cost in side})} "
            f"inotify descriptors, {median([cost.resident_mib for cost in side]):.1f} MiB, "
            f"start {median([cost.start_seconds for cost in side]):.3f} s"
            for name, side in (("without the plugin", without), ("with the plugin", having))
        ),
        measured_at=now(),
    )


def _costs(bench: BenchLab, flags: tuple[str, ...]) -> Costs:
    agent = bench.agent(flags=flags)
    seconds = start_seconds(agent)
    with agent:
        wait_ready(agent)
        costs = Costs(
            start_seconds=seconds,
            resident_mib=resident_mib(agent.pid),
            threads=int(status_of(agent.pid, "Threads")),
            watches=_watches(agent.pid),
        )
    agent.remove_files()
    return costs


def _watches(pid: int) -> int:
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return links.count("anon_inode:inotify")
