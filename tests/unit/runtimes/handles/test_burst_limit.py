"""`BurstLimit`: a burst at once, then a steady rate."""

from __future__ import annotations

from kubeletx.runtimes.handles.event_pacer import BurstLimit


def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = BurstLimit(10, 3)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_seconds(100.0) == 0.1
    assert not bucket.take(100.05)
    assert bucket.take(100.1)
    assert sum(bucket.take(100.1 + n / 1000) for n in range(1000)) == 9


def test_the_end_of_the_wait_always_has_a_token() -> None:
    bucket, now = BurstLimit(3, 1), 1000.0
    for _ in range(10_000):
        assert bucket.take(now)
        now += bucket.wait_seconds(now)


def test_a_long_pause_gives_no_more_than_the_burst() -> None:
    bucket = BurstLimit(10, 3)
    assert sum(bucket.take(1e9) for _ in range(10)) == 3
