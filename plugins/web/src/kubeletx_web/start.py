"""The start of a pod as rows of a time line: one row for all attempts of one step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from markupsafe import Markup

from kubeletx.kube.start_timeline import PodStart, StartBar, start_bars
from kubeletx.kube.text.human import human_seconds

ROWS: Final = 40
WIDTH: Final = 1000
LEAST: Final = 4
"""Width of the whole time line and least width of a bar, in units of the picture."""


class History(msgspec.Struct, frozen=True):
    """Answer of the agent about a pod. `start` None: the pod is older than the agent process."""

    start: PodStart | None = None


class StartRow(msgspec.Struct, frozen=True):
    """One step. `text`: its duration, attempts and failure. `open_since`: it has not ended; None: it has."""

    label: str
    bars: Markup
    text: str
    failed: bool
    open_since: datetime | None = None


def start_rows(start: PodStart | None) -> Sequence[StartRow]:
    """Return the rows in the order of their beginning; empty if the agent did not see the start.

    A step that has not ended goes to the right end, so that the rows do not change as time passes.
    """
    if start is None:
        return ()
    bars = start_bars(start, start.running_at or start.seen_at)
    total = max([bar.end for bar in bars], default=0.0) * (1.25 if any(bar.is_open for bar in bars) else 1.0)
    by_label: dict[str, list[StartBar]] = {}
    for bar in bars:
        by_label.setdefault(bar.label, []).append(bar)
    return [_row(start, label, group, total or 1.0) for label, group in [*by_label.items()][:ROWS]]


def _row(start: PodStart, label: str, bars: Sequence[StartBar], total: float) -> StartRow:
    shapes = Markup("").join(_shape(bar, total) for bar in bars)
    last = bars[-1]
    text = "" if last.is_open else human_seconds(last.end - bars[0].start)
    if len(bars) > 1:
        text = f"{text} in {len(bars)} attempts"
    if last.failed:
        text = f"{text}, failed: {last.reason or 'see the events'}"
    return StartRow(
        label=label,
        bars=Markup(
            '<svg class="bars" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
        ).format(WIDTH, shapes),
        text=text,
        failed=last.failed,
        open_since=start.running_at if last.is_open else None,
    )


def _shape(bar: StartBar, total: float) -> Markup:
    left = round(WIDTH * bar.start / total)
    right = WIDTH if bar.is_open else round(WIDTH * bar.end / total)
    left = min(left, WIDTH - LEAST)
    css = "failed" if bar.failed else "open" if bar.is_open else "done"
    return Markup('<rect class="{}" x="{}" y="1" width="{}" height="8"/>').format(
        css, left, max(LEAST, right - left)
    )
