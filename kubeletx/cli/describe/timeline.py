"""Draws the start of a pod as bars on a time axis, for ``describe pod --timeline``.

    bind            █                                   2 ms
    image web        ✗✗✗✗✗✗✗✗                         820 ms  failed 2 times ErrImagePull
    container web            ██████                   540 ms
                    |0 ms       |270 ms     |540 ms

Attempts of one thing share a line. What goes on has a lighter colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kubeletx.kube.start_timeline import PodStart, StartBar, start_bars
from kubeletx.kube.text.human import human_seconds

from ..output.screen import screen, shown_as

WIDTH: Final = 80
"""Columns without a terminal."""
_TICK_COLUMNS: Final = 12
_LEAST_COLUMNS: Final = 10


def describe_start(start: PodStart | None, now: datetime) -> list[str]:
    """Return the lines of the drawing; it is as wide as the terminal."""
    if start is None:
        return ["Timeline:  <unknown: the pod is older than this process of the agent>"]
    by_label: dict[str, list[StartBar]] = {}
    for bar in start_bars(start, now):
        by_label.setdefault(bar.label, []).append(bar)
    if not by_label:
        return ["Timeline:  <none>"]
    width = screen().width or WIDTH
    notes = {label: _note(bars) for label, bars in by_label.items()}
    names = max(map(len, notes))
    room = max(_LEAST_COLUMNS, width - names - max(map(len, notes.values())) - 4)
    scale = room / max(0.001, *(bar.end for bars in by_label.values() for bar in bars))
    lines = [
        f"  {label:<{names}} {_cells(by_label[label], room, scale)} {note}" for label, note in notes.items()
    ]
    ticks = (f"|{human_seconds(place / scale)}" for place in range(0, room, _TICK_COLUMNS))
    lines.append(f"  {'':{names}} {''.join(f'{tick:<{_TICK_COLUMNS}}' for tick in ticks)}".rstrip())
    return ["Timeline:", *(line[:width] for line in lines)]


def _note(bars: Sequence[StartBar]) -> str:
    failed = [bar.reason for bar in bars if bar.reason]
    times = f"{len(failed)} times " if len(failed) > 1 else ""
    took = human_seconds(bars[-1].end - bars[0].start)
    return f"{took:>8}" + (f"  failed {times}{failed[-1]}" if failed else "")


def _cells(bars: Sequence[StartBar], room: int, scale: float) -> str:
    marks = shown_as("█✗░", "#x.")
    cells = [" "] * room
    for bar in bars:
        first = min(room - 1, int(bar.start * scale))
        last = max(first + 1, round(bar.end * scale))
        cells[first:last] = [marks[1 if bar.reason else 2 if bar.is_open else 0]] * (last - first)
    return "".join(cells)
