"""The start of a pod as rows of a time line: one row for all attempts of one step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

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
    """One step. `bars`: kind (done, failed or open), left end and width of each. `text`: its duration, attempts and failure.

    `open_since`: it has not ended; None: it has.
    """

    label: str
    bars: Sequence[tuple[str, int, int]]
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
    end = max([bar.end for bar in bars], default=0.0) or 1.0
    total = end * 1.25 if any(bar.is_open for bar in bars) else end
    by_label: dict[str, list[StartBar]] = {}
    for bar in bars:
        by_label.setdefault(bar.label, []).append(bar)
    rows = []
    for label, attempts in [*by_label.items()][:ROWS]:
        last = attempts[-1]
        text = "" if last.is_open else human_seconds(last.end - attempts[0].start)
        text += f" in {len(attempts)} attempts" if len(attempts) > 1 else ""
        text += f", failed: {last.reason}" if last.reason else ""
        shapes = [_shape(bar, total) for bar in attempts]
        rows.append(
            StartRow(label, shapes, text, bool(last.reason), start.running_at if last.is_open else None)
        )
    return rows


def _shape(bar: StartBar, total: float) -> tuple[str, int, int]:
    left = min(round(WIDTH * bar.start / total), WIDTH - LEAST)
    right = WIDTH if bar.is_open else round(WIDTH * bar.end / total)
    kind = "failed" if bar.reason else "open" if bar.is_open else "done"
    return kind, left, max(LEAST, right - left)
