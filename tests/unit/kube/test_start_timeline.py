"""The bars of a pod's start lie where its actions were, and the line sums them up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeletx.kube.start_timeline import StartBar, start_bars, start_line
from kubeletx.kube.text.human import human_seconds
from kubeletx.server.views import ActionView, StartView

SEEN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return SEEN + timedelta(seconds=seconds)


def step(action: str, end: float, seconds: float, result: str = "done") -> ActionView:
    return ActionView(at=at(end), action=action, result=result, seconds=seconds)


STEPS = (
    step("bind", 0.002, 0.002, "bound"),
    step("prepare volumes", 0.01, 0.005, "volumes ready"),
    step("create sandbox", 0.125, 0.11, "sandbox made"),
    step("ensure image web", 0.5, 0.4, "image failed: ErrImagePull: no such host, unit failed: x"),
    step("ensure image web", 0.9, 0.2, "image present"),
    step("start unit web", 1.0, 0.02, "unit started"),
)


def test_each_action_has_a_bar_and_the_last_is_until_ready() -> None:
    start = StartView(seen_at=SEEN, running_at=at(1.0), ready_at=at(1.1), steps=STEPS)
    bars = start_bars(start, at(99))
    assert [bar.label for bar in bars] == [
        "bind",
        "volumes",
        "sandbox",
        "image web",
        "image web",
        "container web",
        "ready",
    ]
    assert bars[2].start == pytest.approx(0.015)
    assert [(bar.label, bar.reason) for bar in bars if bar.failed] == [("image web", "ErrImagePull")]
    assert bars[-1] == StartBar("ready", "ready", 1.0, 1.1)
    assert start_line(start, at(99)) == "bound 2 ms, image 800 ms, sandbox 110 ms, started 20 ms, ready 1.1 s"


def test_a_start_goes_on_until_the_pod_is_ready_or_has_ended() -> None:
    start = StartView(seen_at=SEEN, running_at=at(1.0), steps=STEPS)
    assert start_bars(start, at(9))[-1] == StartBar("ready", "ready", 1.0, 9.0, is_open=True)
    assert start_line(start, at(9)).endswith(", not ready after 9.0 s")
    job = StartView(seen_at=SEEN, running_at=at(1.0), ended_at=at(30), steps=STEPS)
    assert start_bars(job, at(99))[-1] == StartBar("ready", "running", 1.0, 30.0)
    assert start_line(job, at(99)).endswith("ended after 30 s")


@pytest.mark.parametrize(
    ("action", "result", "label", "reason"),
    [
        ("bind", "rejected: OutOfcpu: too large", "bind", "OutOfcpu"),
        ("start unit web", "unit failed: RunError: a, unsettled", "container web", "RunError"),
        ("run post start web", "hook noted: password=1", "hook web", "PostStartHookError"),
        ("ensure image web", "cancelled", "image web", "cancelled"),
    ],
)
def test_a_failed_action_has_its_reason_and_no_output(
    action: str, result: str, label: str, reason: str
) -> None:
    start = StartView(seen_at=SEEN, steps=(step(action, 1.0, 2.0, result),))
    (bar,) = start_bars(start, at(5))
    assert (bar.label, bar.start, bar.failed, bar.reason) == (label, 0.0, True, reason)
    assert start_line(start, at(5)) == f"{label} failed ({reason}), not ready after 5.0 s"


@pytest.mark.parametrize(
    ("action", "result"),
    [("run post start web", "hook noted"), ("read message web", "message read: image failed: x")],
)
def test_a_text_of_a_container_does_not_count_as_a_failure(action: str, result: str) -> None:
    (bar,) = start_bars(StartView(seen_at=SEEN, steps=(step(action, 1.0, 1.0, result),)), at(5))
    assert not bar.failed


def test_short_times_have_a_unit() -> None:
    times = (0.0004, 0.11, 0.9996, 9.94, 9.96, 119.4, 200)
    assert [human_seconds(each) for each in times] == [
        "0 ms",
        "110 ms",
        "1.0 s",
        "9.9 s",
        "10 s",
        "119 s",
        "3m20s",
    ]
