"""A run's figures against the published ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api.errors import InvalidConfig
from script.benchmarks import main
from script.benchmarks.compare import (
    ALLOWED,
    HIGHER_IS_BETTER,
    Verdict,
    compare,
    read_report,
    summary,
    table,
    worse_by,
)
from script.benchmarks.model import Figure, Report, Result, markdown

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
positive = st.floats(min_value=0.001, max_value=1e6)
units = st.sampled_from(sorted(HIGHER_IS_BETTER))


def figure(
    label: str = "one pod", value: float = 200.0, unit: str = "ms", floor: float | None = None
) -> Figure:
    return Figure(label=label, value=value, unit=unit, floor=floor)


def results(*figures: Figure, name: str = "pods") -> dict[str, Result]:
    return {name: Result(name=name, figures=figures, measured_at=MOMENT)}


def published() -> Report:
    return read_report(main.PUBLISHED / "results.json")


@given(units, positive, positive, st.floats(min_value=0.01, max_value=100))
def test_a_machine_that_is_slower_for_agent_and_floor_alike_changes_nothing(
    unit: str, value: float, floor: float, slower: float
) -> None:
    before = figure(value=value, unit=unit, floor=floor)
    after = figure(value=value * slower, unit=unit, floor=floor * slower)
    assert worse_by(before, after) == pytest.approx(0, abs=1e-9)


@given(units, positive, positive, st.none() | positive)
def test_two_figures_that_differ_are_worse_in_exactly_one_direction(
    unit: str, first: float, second: float, floor: float | None
) -> None:
    one, other = figure(value=first, unit=unit, floor=floor), figure(value=second, unit=unit, floor=floor)
    there, back = worse_by(one, other), worse_by(other, one)
    assert there * back <= 0
    assert (there == 0) == (back == 0)
    if floor is None:
        assert (there > 0) == ((second < first) if HIGHER_IS_BETTER[unit] else (second > first))


@given(units, positive, st.floats(min_value=-0.9, max_value=5.0))
def test_only_more_than_the_allowed_share_is_worse(unit: str, value: float, share: float) -> None:
    measured = value * (1 - share if HIGHER_IS_BETTER[unit] else 1 + share)
    (one,) = compare(results(figure(value=value, unit=unit)), results(figure(value=measured, unit=unit)))
    if abs(abs(share) - ALLOWED) > 1e-6:
        assert (one.verdict is Verdict.WORSE) == (share > ALLOWED)
        assert (one.verdict is Verdict.BETTER) == (share < -ALLOWED)


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")))
def test_every_figure_of_either_side_is_named_once(old: set[str], new: set[str]) -> None:
    compared = compare(
        results(*(figure(label) for label in sorted(old))), results(*(figure(label) for label in sorted(new)))
    )
    assert sorted(one.label for one in compared) == sorted(old | new)
    verdicts = {one.label: one.verdict for one in compared}
    assert {label for label in verdicts if verdicts[label] is Verdict.NOT_MEASURED} == old - new
    assert {label for label in verdicts if verdicts[label] is Verdict.NOT_PUBLISHED} == new - old
    assert all(label in table(compared) for label in old | new)


def test_a_figure_is_judged_by_its_value_if_only_one_run_has_a_floor() -> None:
    assert worse_by(figure(value=100), figure(value=150, floor=140)) == pytest.approx(0.5)


def test_an_agent_below_its_floor_can_become_worse_too() -> None:
    assert worse_by(figure(value=-2.0), figure(value=1.0)) == pytest.approx(1.5)
    assert worse_by(figure(value=0.0), figure(value=0.1)) == float("inf")
    assert worse_by(figure(value=0.0), figure(value=0.0)) == 0


def test_the_table_shows_both_sides_and_the_summary_names_what_is_worse() -> None:
    compared = compare(
        results(figure("one pod", 199, "ms", 178), figure("30 pods", 10.0, "pods/s"), figure("gone", 1.0)),
        results(figure("one pod", 450, "ms", 356), figure("30 pods", 12.0, "pods/s"), figure("new", 1.0)),
    )
    lines = [" ".join(line.split()) for line in table(compared).split("\n")]
    assert lines[1:] == [
        "one pod 1.12 x floor 1.26 x floor 13 % worse WORSE",
        "30 pods 10 pods/s 12 pods/s 20 % better",
        "not measured: gone (pods)",
        "not published: new (pods)",
    ]
    assert summary(compared) == "1 of 2 figures more than 10 % worse: one pod"


def test_the_exit_status_says_whether_a_figure_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = published()
    path = tmp_path / "results.json"

    def status_of(report: Report) -> int:
        path.write_bytes(msgspec.json.encode(report))
        return main.main(["--compare", str(path)])

    assert status_of(report) == 0
    pods = report.results["pods"]
    first = pods.figures[0]
    slow = msgspec.structs.replace(first, value=first.value / 2)
    pods = msgspec.structs.replace(pods, figures=(slow, *pods.figures[1:]))
    assert status_of(msgspec.structs.replace(report, results={**report.results, "pods": pods})) == 1
    assert "figures more than 10 % worse: 30 static pods\n" in capsys.readouterr().out
    path.write_text("{}")
    assert main.main(["--compare", str(path)]) == 2
    assert f"error: {path}: machine: is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": Input data was truncated"),
        ("[]", ": Expected `object`, got `array`"),
        ('{"machine": {}}', ": results: is missing"),
        ('{"machine": {}, "results": {}}', ": results: has no figures"),
        ('{"machine": {}, "results": {"pods": {}}}', ": results.pods.name: is missing"),
        (
            '{"machine": {}, "results": {"pods": {"name": "pods", "measured_at": "2030-01-01T00:00:00Z",'
            ' "figures": [{"label": "a", "value": "1", "unit": "ms"}]}}}',
            ": results.pods.figures[0].value: Expected `float`, got `str`",
        ),
        (
            '{"machine": {}, "results": {"pods": {"name": "pods", "measured_at": "2030-01-01T00:00:00Z",'
            ' "figures": [{"label": "a", "value": 1, "unit": "ells"}]}}}',
            ": results.pods.figures[0].unit: unknown unit 'ells'",
        ),
    ],
)
def test_a_file_that_is_not_a_report_is_an_error_with_file_and_field(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        read_report(path)
    assert f"{path}{message}" in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"nothing\.json: cannot be read: No such file"):
        read_report(tmp_path / "nothing.json")


def test_the_page_shows_the_published_figures() -> None:
    assert markdown(published().results) in main.PAGE.read_text()
    page = main.PAGE.read_text()
    assert main.page_with_tables(page, published()) == page


def test_goals_of_published_figures_point_in_the_direction_of_their_unit() -> None:
    figures = [one for result in published().results.values() for one in result.figures]
    for one in figures:
        if one.goal.startswith(("≥", "≤")):
            assert one.goal.startswith("≥") == HIGHER_IS_BETTER[one.unit], one.label


def test_published_figures_have_names_of_their_own() -> None:
    for name, result in published().results.items():
        labels = [one.label for one in result.figures]
        assert result.name == name
        assert len(set(labels)) == len(labels)
