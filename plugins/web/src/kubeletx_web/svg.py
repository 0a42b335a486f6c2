"""Plots as SVG, drawn by the server. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

WIDTH, HEIGHT = 90, 20
"""Size of a sparkline in its own units: one unit of width a sample."""


def sparkline(
    values: Iterable[int | None],
    label: str,
    limit: int | None = None,
    *,
    marks: Iterable[tuple[int, str]] = (),
    css: str = "spark",
) -> Markup:
    """Return a plot without texts. `label`: what it shows, for screen readers. `limit`: is drawn as a line; None: there is none.

    The height is the larger of the limit and the largest value. A sample that was not measured is a gap. `marks`: words at
    vertical lines, by the number of the sample. `css`: class of the picture.
    """
    shown = list(values)[-WIDTH:]
    top = max([value for value in shown if value is not None] + [limit or 0, 1])
    offset, path, before = WIDTH - len(shown), "", None
    for x, value in enumerate(shown, offset):
        if value is not None:
            path += f"{'M' if before is None else 'L'}{x} {_y(value, top)}"
        before = value
    lines = [Markup('<path class="limit" d="M0 {}H{}"/>').format(_y(limit, top), WIDTH)] if limit else []
    mark = Markup('<path class="mark {}" d="M{} 0V{}"/>')
    lines += [mark.format(word, offset + number, HEIGHT) for number, word in marks]
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}<path d="{}"/></svg>'
    ).format(css, WIDTH, HEIGHT, label, Markup("").join(lines), path)


def _y(value: int, top: int) -> float:
    return round((HEIGHT - 1) * (1 - value / top) + 0.5, 1)
