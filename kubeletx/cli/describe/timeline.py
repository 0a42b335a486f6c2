"""Draws the start of a pod as bars on a time axis, for ``describe pod --timeline``.

    bind            █                                   2 ms
    image web        ✗✗✗✗✗✗✗✗                         820 ms  failed ErrImagePull
    container web            ██████                   540 ms
                    |        |         |
                    0 ms     500 ms    1.0 s

Attempts of one thing share a line. Bars that go on have a lighter colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from kubeletx.kube.start_timeline import StartBar, StartRecord, start_bars
from kubeletx.kube.text.human import human_seconds

from ..output.screen import screen, shows

WIDTH: Final = 80
"""Columns without a terminal."""
_BLOCKS: Final = ("█", "✗", "░"), ("#", "x", ".")
_TICK_COLUMNS: Final = 12
_TIME_COLUMNS: Final = 8
_LEAST_COLUMNS: Final = 10


def describe_start(start: StartRecord | None, now: datetime) -> list[str]:
    """Return the lines of the drawing; it is as wide as the terminal."""
    if start is None:
        return ["Timeline:  <unknown: the pod is older than this process of the agent>"]
    out = screen()
    lines = draw(start_bars(start, now), out.width or WIDTH, colored=out.colored)
    return ["Timeline:", *lines] if lines else ["Timeline:  <none>"]


def draw(bars: Sequence[StartBar], width: int, *, colored: bool = False) -> list[str]:
    """Return the lines of a drawing in `width` columns. `colored`: failed attempts are red."""
    if not bars:
        return []
    by_label: dict[str, list[StartBar]] = {}
    for bar in bars:
        by_label.setdefault(bar.label, []).append(bar)
    names = min(max(map(len, by_label)), width // 3)
    space = width - names - 4
    notes = {label: _note(row)[: space - _LEAST_COLUMNS] for label, row in by_label.items()}
    room = max(_LEAST_COLUMNS, space - max(map(len, notes.values())))
    seconds = max(0.001, *(bar.end for bar in bars))
    lines = [
        f"  {label[:names]:<{names}} {_row(row, room, seconds, colored=colored)} {notes[label]}"
        for label, row in by_label.items()
    ]
    return lines + [f"  {'':<{names}} {line}".rstrip() for line in _axis(room, seconds)]


def _note(row: Sequence[StartBar]) -> str:
    failed = [bar for bar in row if bar.failed]
    took = human_seconds(row[-1].end - row[0].start)
    times = f"{len(failed)} times " if len(failed) > 1 else ""
    return f"{took:>{_TIME_COLUMNS}}" + (f"  failed {times}{failed[-1].reason}".rstrip() if failed else "")


def _row(row: Sequence[StartBar], room: int, seconds: float, *, colored: bool) -> str:
    done, failed, still = _BLOCKS[0] if shows("".join(_BLOCKS[0])) else _BLOCKS[1]
    cells = [" "] * room
    for bar in row:
        first = min(room - 1, int(bar.start / seconds * room))
        last = max(first + 1, round(bar.end / seconds * room))
        mark = failed if bar.failed else still if bar.is_open else done
        cells[first:last] = [click.style(mark, fg="red") if colored and bar.failed else mark] * (last - first)
    return "".join(cells)


def _axis(room: int, seconds: float) -> list[str]:
    """Return the ticks, and their times, which are round numbers."""
    least = seconds * _TICK_COLUMNS / room
    steps = (factor * 10.0**power for power in range(-3, 8) for factor in (1, 2, 5))
    step = next((step for step in steps if step >= least), seconds)
    ticks = times = ""
    for number in range(int(seconds / step) + 1):
        place = int(number * step / seconds * room)
        text = human_seconds(number * step)
        if place + len(text) <= room + _TIME_COLUMNS:
            ticks, times = ticks.ljust(place) + "|", times.ljust(place) + text
    return [ticks, times]
