"""Compares a run's figures with the published ones.

A figure that has a floor in both runs is judged by its ratio to the floor of its own run, so that a slow or busy
machine does not count. All others are judged by their value. The unit says which direction is better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kubeletx.api.errors import InvalidConfig

from .model import Figure, Report, Result, number

_Kind = TypeVar("_Kind")
ALLOWED: Final = 0.1
"""Share of the published figure by which a figure may be worse."""
HIGHER_IS_BETTER: Final = {
    "pods/s": True,
    "machines/s": True,
    "volumes/s": True,
    "MB/s": True,
    "µs": False,
    "ms": False,
    "s": False,
    "s/min": False,
    "1/min": False,
    "requests": False,
    "% of a core": False,
    "KB": False,
    "KiB": False,
    "MB": False,
    "MiB": False,
}
"""By unit. A new unit needs a line here."""


class Verdict(StrEnum):
    """Outcome of the comparison of one figure."""

    WORSE = "WORSE"
    EQUAL = "equal"
    BETTER = "better"
    NOT_MEASURED = "not measured"
    NOT_PUBLISHED = "not published"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of one figure. `published` or `measured` is None if that report lacks it.

    `worse_by`: share of the published figure by which the measured one is worse, negative if it is better; None
    unless both reports have it.
    """

    benchmark: str
    label: str
    published: Figure | None
    measured: Figure | None
    worse_by: float | None
    verdict: Verdict


class _Undecoded(msgspec.Struct):
    """A report whose results are decoded one by one, so that errors name the benchmark."""

    machine: dict[str, str]
    results: dict[str, msgspec.Raw]


def read_report(path: Path) -> Report:
    """Read the results.json of an earlier run.

    Raises InvalidConfig with file and field if it is not a valid report.
    """
    try:
        data = path.read_bytes()
    except OSError as err:
        raise InvalidConfig(
            obj=str(path),
            field="",
            problem=f"cannot be read: {err.strerror}",
            fix="name a results.json that script/bench wrote",
        ) from err
    report = _decode(data, _Undecoded, path, "")
    results = {name: _decode(raw, Result, path, f"results.{name}") for name, raw in report.results.items()}
    if not any(result.figures for result in results.values()):
        raise InvalidConfig(
            obj=str(path), field="results", problem="has no figures", fix="run script/bench again"
        )
    for name, result in results.items():
        for place, figure in enumerate(result.figures):
            if figure.unit not in HIGHER_IS_BETTER:
                raise InvalidConfig(
                    obj=str(path),
                    field=f"results.{name}.figures[{place}].unit",
                    problem=f"unknown unit '{figure.unit}'",
                    fix=f"use one of {', '.join(HIGHER_IS_BETTER)}",
                )
    return Report(machine=report.machine, results=results)


def compare(published: Mapping[str, Result], measured: Mapping[str, Result]) -> tuple[Compared, ...]:
    """Compare every figure of either side, in the published order; figures of `measured` alone come last."""
    old, new = _by_key(published), _by_key(measured)
    return tuple(
        _compared(benchmark, label, old.get((benchmark, label)), new.get((benchmark, label)))
        for benchmark, label in {**old, **new}
    )


def worse_by(published: Figure, measured: Figure) -> float:
    """Share of the published figure by which the measured one is worse; negative if it is better.

    Infinite if the published figure is 0 and the measured one is not.
    """
    old, new = published.value, measured.value
    if published.floor and measured.floor:
        old, new = old / published.floor, new / measured.floor
    change = old - new if HIGHER_IS_BETTER[published.unit] else new - old
    if change == 0:
        return 0.0
    return change / abs(old) if old else change * float("inf")


def table(compared: Sequence[Compared]) -> str:
    """Format a line for each figure that both reports have, then the names of the others."""
    lines = [("figure", "published", "measured", "change", "")]
    lines += [
        (
            comparison.label,
            _shown(comparison.published, comparison.measured),
            _shown(comparison.measured, comparison.published),
            _change(comparison.worse_by),
            comparison.verdict if comparison.verdict is Verdict.WORSE else "",
        )
        for comparison in compared
        if comparison.worse_by is not None
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    for verdict in (Verdict.NOT_MEASURED, Verdict.NOT_PUBLISHED):
        text += [
            f"{verdict}: {comparison.label} ({comparison.benchmark})"
            for comparison in compared
            if comparison.verdict is verdict
        ]
    return "\n".join(text)


def summary(compared: Sequence[Compared]) -> str:
    """Say in one line how many figures are worse, and name them."""
    both = [comparison for comparison in compared if comparison.worse_by is not None]
    worse = [comparison.label for comparison in both if comparison.verdict is Verdict.WORSE]
    if not worse:
        return f"none of {len(both)} figures is more than {ALLOWED * 100:g} % worse than the published one"
    return f"{len(worse)} of {len(both)} figures more than {ALLOWED * 100:g} % worse: {'; '.join(worse)}"


def _compared(benchmark: str, label: str, published: Figure | None, measured: Figure | None) -> Compared:
    share = None
    if published is None:
        verdict = Verdict.NOT_PUBLISHED
    elif measured is None:
        verdict = Verdict.NOT_MEASURED
    else:
        share = worse_by(published, measured)
        verdict = Verdict.WORSE if share > ALLOWED else Verdict.BETTER if share < -ALLOWED else Verdict.EQUAL
    return Compared(
        benchmark=benchmark,
        label=label,
        published=published,
        measured=measured,
        worse_by=share,
        verdict=verdict,
    )


def _by_key(results: Mapping[str, Result]) -> dict[tuple[str, str], Figure]:
    return {(name, figure.label): figure for name, result in results.items() for figure in result.figures}


def _shown(figure: Figure | None, other: Figure | None) -> str:
    if figure is None or other is None:
        return ""
    if figure.floor and other.floor:
        return f"{number(figure.value / figure.floor)} x floor"
    return f"{number(figure.value)} {figure.unit}"


def _change(share: float | None) -> str:
    if share is None:
        return ""
    if abs(share) == float("inf"):
        return "from 0"
    percent = round(share * 100)
    return f"{abs(percent)} % {'worse' if percent > 0 else 'better'}" if percent else "none"


def _decode(data: bytes | msgspec.Raw, kind: type[_Kind], path: Path, field: str) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as err:
        problem, _, place = str(err).partition(" - at `$")
        if missing := re.fullmatch(r"Object missing required field `(\w+)`", problem):
            place, problem = f"{place.rstrip('`')}.{missing[1]}", "is missing"
        raise InvalidConfig(
            obj=str(path),
            field=f"{field}{place.rstrip('`')}".lstrip("."),
            problem=problem,
            fix="name a results.json that script/bench wrote",
        ) from err
