"""The picture of README.md: the demo's table of pods, and the memory of its pod on standby; `script/demo --picture`."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.table import Table

_COLUMNS, _INCHES = 96, 7.6
_SETTLED, _ASLEEP, _INK, _PAPER = "#e67e22", "#2563eb", "#e6edf3", "#0d1117"
_MEBIBYTE = 1 << 20


def draw(path: Path, table: Table, pod: str, memory: dict[str, int]) -> None:
    """Write a PNG file. `memory`: bytes of the pod on standby after each event, the first while it runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    console = Console(file=io.StringIO(), width=_COLUMNS)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().rstrip().splitlines()]
    events = list(memory)
    with plt.rc_context({"text.color": _INK, "font.family": "DejaVu Sans Mono", "font.size": 9}):
        table_inches, bars_inches = 0.19 * len(lines), 0.32 * len(events)
        height = table_inches + bars_inches + 0.7
        figure = plt.figure(figsize=(_INCHES, height), facecolor=_PAPER)
        text = "\n".join(lines)
        figure.text(0.02, 1 - 0.15 / height, text, va="top", linespacing=1.3)
        below = figure.add_axes((0.42, 0.1 / height, 0.55, bars_inches / height))
        below.set_facecolor(_PAPER)
        sizes = [memory[event] / _MEBIBYTE for event in events]
        bars = below.barh(events, sizes, color=[_SETTLED, *[_ASLEEP] * (len(events) - 1)], height=0.6)
        below.bar_label(bars, [f"{size:.1f} MiB" for size in sizes], padding=4, color=_INK)
        below.invert_yaxis()
        below.set_xlim(0, max(sizes) * 1.2)
        below.set_xticks([])
        below.tick_params(left=False, labelcolor=_INK)
        figure.text(0.02, (bars_inches + 0.25) / height, f"memory of {pod}")
        for spine in below.spines.values():
            spine.set_visible(False)
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)
