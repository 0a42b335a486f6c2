"""Results of benchmarks: figures with their goals and floors, and series for the plots; JSON and tables of them."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured number. `floor`: the same number without the agent. `ratio`: of value and floor.

    `goal`: in words; empty: there is none. `is_met`: whether the goal is met; None without a goal. `samples`: the
    single measurements.
    """

    label: str
    value: float
    unit: str
    goal: str = ""
    is_met: bool | None = None
    floor: float | None = None
    ratio: float | None = None
    samples: tuple[float, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures of one benchmark.

    `series`: named lists of numbers for the plots. `load_before`: the machine's load average.
    """

    name: str
    figures: tuple[Figure, ...]
    series: dict[str, list[float]] = {}
    notes: tuple[str, ...] = ()
    measured_at: datetime
    seconds: float = 0.0
    load_before: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Results by benchmark, of one run or of the last run of each benchmark.

    `machine`: description of the hardware.
    """

    machine: dict[str, str]
    results: dict[str, Result]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts to measure. `tiny` sizes only show that a benchmark works."""

    runs: int = 3
    single_runs: int = 11
    start_runs: int = 7
    pods: tuple[int, ...] = (30, 100)
    idle_pods: int = 100
    idle_seconds: float = 120.0
    scale_pods: tuple[int, ...] = (100, 500, 1000, 2000, 5000)
    machine_runs: int = 11
    machines: int = 10
    listed_machines: int = 50
    image_mib: int = 512
    stream_mib: int = 256
    isolated_calls: int = 2000
    wakes: int = 200
    burst_pods: int = 100
    standby_pods: int = 200
    most_pods: int = 500
    """Number of pods of `standby-500`; 20 of them run, or a tenth if that is less."""
    answers: int = 5
    heap_mib: int = 48
    """Approximate memory of the records of an instance of `standby-memory`."""
    hold_seconds: float = 1.5
    """Time in each state of the plot of an instance's memory."""
    instances: int = 2
    """Python and Node.js, or only the first."""
    mounts: int = 30
    """Mounts and unmounts of one volume by each side."""
    volumes: int = 50
    record_calls: int = 200
    records: int = 10_000
    link_changes: int = 5_000
    fleet_nodes: int = 500
    fleet_pods: int = 20
    """Changes of each simulated node."""
    sessions: int = 500
    """Sessions of `session-open` at its fixed rate, and again at the highest one."""
    session_pods: int = 25
    kubelet: Path | None = None
    """Program of a stock kubelet that is measured beside the agent; None: there is none."""


QUICK = Sizes(
    runs=1,
    single_runs=5,
    start_runs=3,
    pods=(30,),
    idle_seconds=30.0,
    scale_pods=(100, 1000),
    machine_runs=5,
    stream_mib=64,
    isolated_calls=500,
    wakes=50,
    burst_pods=30,
    standby_pods=50,
    most_pods=100,
    answers=3,
    hold_seconds=0.5,
    mounts=10,
    record_calls=50,
    link_changes=1_000,
    fleet_nodes=100,
    fleet_pods=5,
    sessions=200,
)
TINY = Sizes(
    runs=1,
    single_runs=1,
    start_runs=1,
    pods=(2,),
    idle_pods=2,
    idle_seconds=1.0,
    scale_pods=(10, 20),
    machine_runs=1,
    machines=2,
    listed_machines=2,
    image_mib=8,
    stream_mib=1,
    isolated_calls=5,
    wakes=2,
    burst_pods=2,
    standby_pods=2,
    most_pods=3,
    answers=1,
    heap_mib=1,
    hold_seconds=0.1,
    instances=1,
    mounts=1,
    volumes=2,
    record_calls=2,
    records=20,
    link_changes=20,
    fleet_nodes=2,
    fleet_pods=2,
    sessions=4,
    session_pods=2,
)


def median(values: Sequence[float]) -> float:
    """The median, rounded to four decimals."""
    return round(statistics.median(values), 4)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values is, such as 0.99; rounded to four decimals."""
    ordered = sorted(values)
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4)


def figure(  # noqa: PLR0913 - numbers by name
    label: str,
    unit: str,
    ours: float | Sequence[float],
    floor: float | Sequence[float] | None = None,
    *,
    at_most: float | None = None,
    share: float | None = None,
    at_most_share: float | None = None,
    over: float | None = None,
    digits: int = 4,
) -> Figure:
    """Make a figure of one number, or of the median of samples. `floor`: likewise, of the floor; None: it has none.

    Its goal is a value up to `at_most`, at least `share` of the floor, up to `at_most_share` of the usual value, which is
    then the floor, or up to `over` more than the floor. Value and floor are rounded to `digits`.
    """
    value = median(ours) if isinstance(ours, Sequence) else ours
    least = median(floor) if isinstance(floor, Sequence) else floor
    ratio = None if least is None else value / least
    goal, is_met = "", None
    if at_most is not None:
        goal, is_met = f"≤ {at_most:g}", value <= at_most
    elif share is not None and ratio is not None:
        goal, is_met = f"≥ {share:g} x floor", ratio >= share
    elif at_most_share is not None and ratio is not None:
        goal, is_met = f"≤ {at_most_share:g} x usual", ratio <= at_most_share
    elif over is not None and least is not None:
        goal, is_met = f"≤ floor + {over:g} {unit}", value - least <= over
    return Figure(
        label=label,
        value=round(value, digits),
        unit=unit,
        goal=goal,
        is_met=is_met,
        floor=None if least is None else round(least, digits),
        ratio=ratio,
        samples=tuple(ours) if isinstance(ours, Sequence) else (),
    )


def over_floor(
    label: str, ours: Sequence[float], floors: Sequence[float], allowed: float
) -> tuple[Figure, Figure]:
    """Make two figures in milliseconds: a step's time, and its excess over the floor.

    `allowed`: the goal, in milliseconds over the floor.
    """
    over = round(median(ours) - median(floors), 1)
    return (
        figure(label, "ms", ours, floors, over=allowed, digits=1),
        Figure(
            label=f"{label}, over the floor",
            value=over,
            unit="ms",
            floor=round(median(floors), 1),
            ratio=over / median(floors),
            samples=tuple(mine - floor for mine, floor in zip(ours, floors, strict=True)),
        ),
    )


def machine() -> dict[str, str]:
    """Description of this machine: processors, memory, kernel, cgroups, Python."""
    info = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line), "unknown"
    )
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "kernel": platform.release(),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "python": platform.python_version(),
    }


def now() -> datetime:
    """The present time (UTC) in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def number(value: float | None) -> str:
    """Format with three significant digits and no exponent; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def rows(results: Mapping[str, Result]) -> list[tuple[str, str, str, str, str, str]]:
    """Texts for the table, one row for each figure, with the columns of `HEADINGS`."""
    return [
        (
            figure.label,
            f"{number(figure.value)} {figure.unit}".strip(),
            f"{number(figure.floor)} {figure.unit}".strip() if figure.floor is not None else "",
            number(figure.ratio),
            figure.goal,
            "" if figure.is_met is None else ("yes" if figure.is_met else "no"),
        )
        for result in results.values()
        for figure in result.figures
    ]


HEADINGS = ("figure", "measured", "floor", "ratio", "goal", "met")


def markdown(results: Mapping[str, Result]) -> str:
    """Format all figures as a Markdown table."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(results)]
    return "\n".join(lines)
