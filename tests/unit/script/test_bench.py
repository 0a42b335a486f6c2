"""The benchmarks' tables and plots, and thousands of pods with ten of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from script.benchmarks import fake_plugin, main, scale
from script.benchmarks.machines import moved_bytes
from script.benchmarks.model import Figure, Report, Result, markdown, over_floor, percentile
from script.benchmarks.plots import draw


def make_report() -> Report:

    figure = Figure(
        label="30 static pods",
        value=10.14,
        unit="pods/s",
        goal="≥ 0.9 x floor",
        is_met=True,
        floor=11.0,
        ratio=0.922,
    )
    series = {
        "pods": {
            "floor 30": [11.0],
            "agent 30": [10.1],
            "floor starts 30": [0.5, 1.0],
            "agent starts 30": [0.6, 1.1],
        },
        "one-pod": {"floor": [140.0, 150.0], "agent": [160.0, 150.0]},
        "hang": {"usual": [150.0], "hanging": [160.0, 170.0]},
        "standby-memory": {
            f"{kind} {key}": values
            for kind in ("python", "node")
            for key, values in {
                "seconds": [0.0, 1.0, 2.0, 3.0, 4.0],
                "in memory": [50.0, 50.0, 2.0, 30.0, 40.0],
                "compressed": [0.0, 0.0, 15.0, 10.0, 9.0],
                "marks": [1.0, 1.5, 2.5],
                "answers cold": [900.0, 1000.0],
                "answers hibernated": [20.0, 30.0],
                "answers frozen": [1.0, 2.0],
            }.items()
        },
        "scale": {
            key: [1.0, 2.0]
            for key in ("pods", "start cpu ms", "change cpu ms", "kib per pod", "recovery seconds")
        },
    }
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    return Report(
        machine={"cpu": "1"},
        results={
            name: Result(
                name=name, figures=(figure,) if name == "pods" else (), series=values, measured_at=moment
            )
            for name, values in series.items()
        },
    )


def test_a_figure_is_shown_with_its_floor_goal_and_whether_it_is_met() -> None:

    table = markdown(make_report().results)
    assert "| 30 static pods | 10.1 pods/s | 11 pods/s | 0.922 | ≥ 0.9 x floor | yes |" in table


def test_every_plot_can_be_drawn(tmp_path: Path) -> None:

    drawn = draw(make_report(), tmp_path)
    assert sorted(path.stem for path in drawn) == [
        "latency",
        "scale",
        "standby-answers",
        "standby-memory",
        "starts",
        "throughput",
    ]
    assert all(path.stat().st_size > 5000 for path in drawn)


def test_the_results_of_other_benchmarks_stay_when_one_is_run_again(tmp_path: Path) -> None:

    whole = make_report()
    main.save(whole, tmp_path, merge=False)
    one = msgspec.structs.replace(whole, results={"pods": whole.results["pods"]})
    assert list(main.save(one, tmp_path, merge=True).results) == [
        "pods",
        "one-pod",
        "hang",
        "standby-memory",
        "scale",
    ]


async def test_thousands_of_pods_are_measured_with_ten(tmp_path: Path) -> None:

    fake_plugin.backends.clear()
    measured = await scale.measure_time(10, tmp_path, settle_seconds=0.1, rest_seconds=0.1)
    assert measured.pods == 10
    assert measured.change_cpu_ms > 0
    assert measured.recovery_seconds > 0
    assert 0 < measured.look_up_us < 100


async def test_memory_is_measured_without_what_the_runtime_keeps(tmp_path: Path) -> None:

    fake_plugin.backends.clear()
    measured = await scale.measure_memory(10, tmp_path, settle_seconds=0.1)
    assert measured.kib_per_pod > 1


def test_what_a_process_writes_is_counted_whether_it_reaches_the_disk_or_not(tmp_path: Path) -> None:

    before = moved_bytes(os.getpid())
    (tmp_path / "file").write_bytes(b"x" * (1 << 20))
    assert 1 << 20 <= moved_bytes(os.getpid()) - before < 2 << 20


def test_a_machine_is_measured_by_how_much_it_is_over_the_floor() -> None:

    whole, over = over_floor("one machine", [600.0, 640.0, 900.0], [500.0, 560.0, 570.0], 100)
    assert (whole.value, whole.floor, whole.is_met) == (640.0, 560.0, True)
    assert (over.value, over.samples) == (80.0, (100.0, 80.0, 330.0))


def test_the_last_percent_is_the_greatest_of_few_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([float(number) for number in range(200)], 0.99) == 198.0
    assert percentile([float(number) for number in range(200)], 0.5) == 100.0
