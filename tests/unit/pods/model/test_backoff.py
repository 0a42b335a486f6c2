"""Back-off rules (B1 to B3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.pods.model.backoff import (
    IMAGE,
    SANDBOX,
    duration_text,
    failure_backoff,
    next_backoff,
    next_failure,
    restart_at,
)
from kubeletx.pods.model.facts import ActionFailure, RestartBackoff


def test_the_first_restart_is_immediate() -> None:
    assert restart_at(None, exited_at=100.0, now=100.0) is None


def test_the_crash_loop_goes_10_20_40_80_160_300_300() -> None:
    entry: RestartBackoff | None = None
    now, waits = 0.0, []
    for _ in range(8):
        due = restart_at(entry, exited_at=now, now=now)
        waits.append(0.0 if due is None else due - now)
        started = now if due is None else due
        entry = next_backoff(entry, now, now=started)
        now = started + 1
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_delay_counts_from_the_exit() -> None:
    entry = RestartBackoff(delay_seconds=40, updated_at=0)
    assert restart_at(entry, exited_at=30, now=50) == 70
    assert restart_at(entry, exited_at=30, now=70) is None


def test_crashes_are_forgotten_after_twice_the_cap_of_running() -> None:
    entry = RestartBackoff(delay_seconds=300, updated_at=0)
    assert restart_at(entry, exited_at=600, now=600) == 900
    assert restart_at(entry, exited_at=600.1, now=600.1) is None
    assert next_backoff(entry, 600.1, now=600.1).delay_seconds == 10


def test_idle_time_counts_from_the_restart_and_not_from_the_exit() -> None:
    entry = next_backoff(RestartBackoff(delay_seconds=160, updated_at=0), exited_at=10)
    assert entry == RestartBackoff(delay_seconds=300, updated_at=170)
    assert restart_at(entry, exited_at=700, now=700) == 1000


def test_the_cap_can_be_lowered() -> None:
    entry: RestartBackoff | None = None
    for moment in range(5):
        entry = next_backoff(entry, float(moment), cap=4, initial=1)
    assert entry is not None
    assert entry.delay_seconds == 4
    assert restart_at(entry, exited_at=10, now=10, cap=1) == 11


@given(
    runs=st.lists(st.floats(0, 2000), min_size=1, max_size=30),
    initial=st.sampled_from([1.0, 10.0]),
    cap=st.sampled_from([1.0, 30.0, 300.0]),
)
def test_no_wait_exceeds_the_cap_and_none_shrinks_without_being_forgotten(
    runs: list[float], initial: float, cap: float
) -> None:
    entry: RestartBackoff | None = None
    now, last = 0.0, 0.0
    for run in runs:
        exited = now + run
        due = restart_at(entry, exited_at=exited, now=exited, cap=cap)
        wait = 0.0 if due is None else due - exited
        assert wait <= cap + 1e-6
        if run <= 2 * cap - 1e-6 and entry is not None:
            assert wait >= last - 1e-6
        last = wait
        now = due if due is not None else exited
        entry = next_backoff(entry, exited, now=now, initial=initial, cap=cap)
        assert 0 < entry.delay_seconds <= cap


def test_image_pulls_wait_10_20_up_to_300_seconds() -> None:
    failure: ActionFailure | None = None
    delays = []
    for _ in range(7):
        failure = next_failure(failure, IMAGE, reason="ErrImagePull", message="no", now=0)
        delays.append(failure.retry_at)
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert failure is not None
    assert failure.count == 7


@given(st.floats(0, 1), st.integers(0, 20))
def test_jitter_stays_within_its_bounds_and_never_grows(draw: float, earlier: int) -> None:
    failure: ActionFailure | None = None
    for _ in range(earlier + 1):
        step = failure_backoff(failure, SANDBOX)
        failure = next_failure(failure, SANDBOX, reason="x", message="", now=5.0, draw=draw)
        assert failure.retry_at is not None
        assert 5 + step * 0.5 - 1e-9 <= failure.retry_at <= 5 + step * 1.5 + 1e-9
        assert failure.delay_seconds == step <= SANDBOX.cap_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(10, "10s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s"), (0.1, "100ms"), (3600, "1h0m0s")],
)
def test_durations_read_as_the_kubelet_writes_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
