"""Plots as SVG, drawn by the server: sparklines, and usage of one pod with marks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 90, 20
"""Size of a sparkline in its own units: one unit of width a sample."""


def sparkline(values: Iterable[int | None], label: str, limit: int | None = None) -> Markup:
    """Return a sparkline. `label`: what it shows, for screen readers. `limit`: is drawn as a line; None: there is none.

    The height is the larger of the limit and the largest value. A sample that was not measured is a gap.
    """
    shown = list(values)[-WIDTH:]
    top = max([value for value in shown if value is not None] + [limit or 0, 1])
    line = "".join(_pieces(shown, WIDTH - len(shown), top))
    mark = ""
    if limit:
        y = _y(limit, top)
        mark = f'<path class="limit" d="M0 {y}H{WIDTH}"/>'
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}<path d="{}"/></svg>'
    ).format(WIDTH, HEIGHT, label, Markup(mark), line)


class Mark(NamedTuple):
    """A moment with a word, such as frozen."""

    at: datetime
    word: str


def plot(
    times: Sequence[datetime], values: Iterable[int | None], limit: int | None, marks: Iterable[Mark]
) -> Markup:
    """Return a large plot without texts: the line, the limit, and a vertical line at each mark within `times`."""
    shown = list(values)[-WIDTH:]
    top = max([value for value in shown if value is not None] + [limit or 0, 1])
    offset = WIDTH - len(shown)
    lines = (
        [Markup('<path class="limit" d="M0 {y}H{x}"/>').format(y=_y(limit, top), x=WIDTH)] if limit else []
    )
    for at, word in marks:
        x = offset + sum(time <= at for time in times) - 1
        lines.append(
            Markup('<path class="mark {}" d="M{} 0V{}"><title>{}</title></path>').format(
                word, x, HEIGHT, word
            )
        )
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}<path d="{}"/></svg>'
    ).format(WIDTH, HEIGHT, Markup("").join(lines), "".join(_pieces(shown, offset, top)))


def _pieces(values: Sequence[int | None], offset: int, top: int) -> Iterable[str]:
    is_drawn = False
    for x, value in enumerate(values, offset):
        if value is None:
            is_drawn = False
            continue
        yield f"{'L' if is_drawn else 'M'}{x} {_y(value, top)}"
        is_drawn = True


def _y(value: int, top: int) -> float:
    return round((HEIGHT - 1) * (1 - value / top) + 0.5, 1)
