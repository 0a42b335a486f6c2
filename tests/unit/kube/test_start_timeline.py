"""The bars of a pod's start lie where its actions were, and the line sums them up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeletx.kube.start_timeline import PodAction, PodStart, StartBar, start_bars, start_line
from kubeletx.kube.text.human import human_seconds

SEEN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return SEEN + timedelta(seconds=seconds)


def step(action: str, end: float, seconds: float, reason: str = "") -> PodAction:
    return PodAction(at=at(end), action=action, result="", seconds=seconds, reason=reason)


STEPS = (
    step("bind", 0.002, 0.002),
    step("prepare volumes", 0.01, 0.005),
    step("create sandbox", 0.125, 0.11),
    step("ensure image web", 0.5, 0.4, "ErrImagePull"),
    step("ensure image web", 0.9, 0.2),
    step("start unit web", 1.0, 0.02),
)


def test_each_action_has_a_bar_and_the_last_is_until_ready() -> None:
    bars = start_bars(PodStart(seen_at=SEEN, running_at=at(1.0), ready_at=at(1.1), steps=STEPS), at(99))
    labels = ["bind", "volumes", "sandbox", "image web", "image web", "container web", "ready"]
    assert [bar.label for bar in bars] == labels
    assert bars[2].start == pytest.approx(0.015)
    assert [(bar.label, bar.reason) for bar in bars if bar.reason] == [("image web", "ErrImagePull")]
    (late,) = start_bars(PodStart(seen_at=SEEN, steps=(step("evacuate", 1.0, 2.0),)), at(5))
    assert late == StartBar("evacuate", 0.0, 1.0)


@pytest.mark.parametrize(
    ("ready_at", "ended_at", "bar", "word"),
    [
        (at(1.1), None, StartBar("ready", 1.0, 1.1), "ready 1.1 s"),
        (None, None, StartBar("ready", 1.0, 9.0, is_open=True), "not ready after 9.0 s"),
        (None, at(30), StartBar("running", 1.0, 30.0), "ended after 30 s"),
    ],
)
def test_a_start_goes_on_until_the_pod_is_ready_or_has_ended(
    ready_at: datetime | None, ended_at: datetime | None, bar: StartBar, word: str
) -> None:
    start = PodStart(seen_at=SEEN, running_at=at(1.0), ready_at=ready_at, ended_at=ended_at, steps=STEPS)
    assert start_bars(start, at(9))[-1] == bar
    assert start_line(start, at(9)) == f"bound 2 ms, image 800 ms, sandbox 110 ms, started 20 ms, {word}"


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (step("start unit web", 1.0, 2.0, "RunError"), "container web failed (RunError)"),
        (step("start machine vm", 1.0, 0.5), "started 500 ms"),
        (step("start machine vm", 1.0, 0.5, "RunError"), "machine vm failed (RunError)"),
        (step("run post start web", 1.0, 0.05, "PostStartHookError"), "hook web failed (PostStartHookError)"),
    ],
)
def test_the_line_names_what_failed_and_why(made: PodAction, line: str) -> None:
    assert start_line(PodStart(seen_at=SEEN, steps=(made,)), at(5)) == f"{line}, not ready after 5.0 s"


def test_short_times_have_a_unit() -> None:
    times = (0.0004, 0.11, 0.9996, 9.94, 9.96, 119.4, 200)
    texts = ["0 ms", "110 ms", "1.0 s", "9.9 s", "10 s", "119 s", "3m20s"]
    assert [human_seconds(each) for each in times] == texts
