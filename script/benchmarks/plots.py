"""Draws plots of the results as PNG files. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .model import Report, Result

FLOOR, OURS, GOAL = "#9aa5b1", "#2563eb", "#dc2626"
INSTANCES = {"python": "Python", "node": "Node.js"}
"""Names of the instances of `standby-memory`."""
STYLE: dict[Any, Any] = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw(report: Report, directory: Path) -> list[Path]:
    """Draw a plot for each benchmark that has results in the report; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []
    with plt.rc_context(STYLE):
        for name, (needs, paint) in _PLOTS.items():
            results = [report.results[need] for need in needs if need in report.results]
            if len(results) == len(needs):
                figure = paint(plt, *results)
                path = directory / f"{name}.png"
                figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
                plt.close(figure)
                drawn.append(path)
    return drawn


def _throughput(plt: Any, result: Result) -> Any:
    """Plot pods per second: one bar for the median and one dot for each run."""
    counts = [key.removeprefix("agent ") for key in result.series if key.removeprefix("agent ").isdigit()]
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for shift, side, colour in ((-0.19, "floor", FLOOR), (0.19, "agent", OURS)):
        runs = [result.series[f"{side} {count}"] for count in counts]
        places = [place + shift for place in range(len(counts))]
        axes.bar(places, [_middle(run) for run in runs], width=0.34, color=colour, label=_name(side))
        for place, run in zip(places, runs, strict=True):
            axes.plot([place] * len(run), run, "o", color="black", markersize=3, alpha=0.6)
    axes.set_xticks(range(len(counts)), [f"{count} pods" for count in counts])
    axes.set_ylabel("pods started per second")
    axes.grid(axis="x", visible=False)
    axes.set_title("Throughput, from the last manifest to the last container")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return figure


def _starts(plt: Any, result: Result) -> Any:
    """Plot the number of started containers over time, for the largest number of pods."""
    most = max(int(key.rpartition(" ")[2]) for key in result.series if key.startswith("agent starts"))
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for side, colour in (("floor", FLOOR), ("agent", OURS)):
        times = result.series[f"{side} starts {most}"]
        axes.step([0, *times], range(len(times) + 1), where="post", color=colour, label=_name(side))
    axes.set_xlabel("seconds")
    axes.set_ylabel("containers started")
    axes.set_title(f"One start of {most} pods")
    axes.legend()
    return figure


def _latency(plt: Any, one: Result, hang: Result) -> Any:
    """Plot the milliseconds of every single start."""
    figure, axes = plt.subplots(figsize=(6, 3.4))
    columns = [
        ("bare calls\n(floor)", one.series["floor"], FLOOR),
        ("agent", one.series["agent"], OURS),
        ("agent with two\nruntimes", hang.series["usual"], OURS),
        ("the other\nruntime hangs", hang.series["hanging"], GOAL),
    ]
    for place, (_, values, colour) in enumerate(columns):
        spread = [place + 0.16 * (2 * index / max(1, len(values) - 1) - 1) for index in range(len(values))]
        axes.plot(spread, values, "o", color=colour, markersize=4, alpha=0.7)
        axes.plot([place - 0.25, place + 0.25], [_middle(values)] * 2, color="black", linewidth=1.5)
    axes.set_xticks(range(len(columns)), [column[0] for column in columns])
    axes.grid(axis="x", visible=False)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("milliseconds")
    axes.set_title("One pod: from manifest to running container")
    return figure


def _scale(plt: Any, result: Result) -> Any:
    """Plot CPU, memory and recovery by number of pods on the runtime in memory."""
    pods = result.series["pods"]
    figure, (cpu, memory, recovery) = plt.subplots(1, 3, figsize=(10, 3.2))
    cpu.plot(pods, result.series["start cpu ms"], "o-", color=FLOOR, label="pod start")
    cpu.plot(pods, result.series["change cpu ms"], "o-", color=OURS, label="container restart")
    cpu.set_title("CPU milliseconds each")
    cpu.legend()
    memory.plot(pods, result.series["kib per pod"], "o-", color=OURS)
    memory.axhline(40, color=GOAL, linestyle="--", linewidth=1)
    memory.set_title("KiB per pod")
    recovery.plot(pods, result.series["recovery seconds"], "o-", color=OURS)
    recovery.axhline(5, color=GOAL, linestyle="--", linewidth=1)
    recovery.set_title("Seconds to find all pods again")
    for axes in (cpu, memory, recovery):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("pods")
    figure.tight_layout()
    return figure


def _standby_memory(plt: Any, result: Result) -> Any:
    """Plot the memory of each instance over time: warm, frozen, reclaimed, awake."""
    kinds = _instances(result)
    figure, panels = plt.subplots(1, len(kinds), figsize=(5 * len(kinds), 3.4), squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        seconds = result.series[f"{kind} seconds"]
        left, compressed = result.series[f"{kind} in memory"], result.series[f"{kind} compressed"]
        both = [one + other for one, other in zip(left, compressed, strict=True)]
        axes.fill_between(seconds, left, both, color=FLOOR, alpha=0.6, label="compressed, in zram")
        axes.fill_between(seconds, 0, left, color=OURS, alpha=0.25)
        axes.plot(seconds, left, color=OURS, label="the container's memory")
        axes.set_ylim(0, 1.25 * max(both))
        axes.set_xlim(0, seconds[-1])
        ends = [0, *result.series[f"{kind} marks"], seconds[-1]]
        for name, begin, end in zip(("warm", "frozen", "reclaimed", "awake"), ends, ends[1:], strict=False):
            if begin:
                axes.axvline(begin, color="black", linestyle=":", linewidth=1)
            axes.text((begin + end) / 2, 1.17 * max(both), name, ha="center", fontsize=9)
        axes.axhline(left[0] / 4, color=GOAL, linestyle="--", linewidth=1, label="a quarter of warm")
        axes.set_xlabel("seconds")
        axes.set_ylabel("MiB")
        axes.set_title(INSTANCES[kind])
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3)
    figure.tight_layout()
    return figure


def _standby_answers(plt: Any, result: Result) -> Any:
    """Plot the milliseconds of each first answer: after a cold start, a hibernation and a freeze."""
    states = (("cold", "cold start"), ("hibernated", "hibernated"), ("frozen", "frozen"))
    figure, axes = plt.subplots(figsize=(6, 3.4))
    colours = (OURS, "#f59e0b")
    for shift, kind, colour in zip((-0.15, 0.15), _instances(result), colours, strict=False):
        for place, (state, _) in enumerate(states):
            values = result.series[f"{kind} answers {state}"]
            middle = _middle(values)
            label = INSTANCES[kind] if place == 0 else None
            axes.plot(
                [place + shift] * len(values), values, "o", color=colour, markersize=4, alpha=0.6, label=label
            )
            axes.plot([place + shift - 0.1, place + shift + 0.1], [middle] * 2, color="black", linewidth=1.5)
            axes.annotate(
                f"{middle:,.0f} ms" if middle >= 10 else f"{middle:.1f} ms",
                (place + shift, max(values)),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 2)
    axes.set_xlim(-0.5, len(states) - 0.5)
    axes.set_xticks(range(len(states)), [words for _, words in states])
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("milliseconds (logarithmic)")
    axes.set_title("First answer of an instance")
    axes.legend()
    return figure


def _instances(result: Result) -> list[str]:
    return [kind for kind in INSTANCES if f"{kind} seconds" in result.series]


def _middle(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _name(side: str) -> str:
    return "bare calls (floor)" if side == "floor" else "kubeletx"


_PLOTS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "throughput": (("pods",), _throughput),
    "starts": (("pods",), _starts),
    "latency": (("one-pod", "hang"), _latency),
    "scale": (("scale",), _scale),
    "standby-memory": (("standby-memory",), _standby_memory),
    "standby-answers": (("standby-memory",), _standby_answers),
}
