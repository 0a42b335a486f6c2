"""Which thresholds are met, for how long, and what is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidConfig
from kubeletx.node.readiness import Pressure
from kubeletx.node.thresholds import (
    SIGNALS,
    Observation,
    Threshold,
    ThresholdReading,
    ThresholdState,
    amount_of,
    parse_thresholds,
    step,
)

MI = 1 << 20
PLACES = ("", "disk 8:1", "disk 8:2")


def memory(available: int, at: float) -> Observation:
    return Observation(signal="memory.available", available=available, capacity=1000, at=at)


def looks(thresholds: tuple[Threshold, ...], *series: tuple[float, int]) -> list[ThresholdReading]:
    """One look for each (time, memory that is available)."""
    state, found = ThresholdState(), []
    for at, available in series:
        found.append(step(state, thresholds, (memory(available, at),), mono=at))
        state = found[-1].state
    return found


def test_a_hard_threshold_acts_at_once_and_its_pressure_is_held_for_a_while() -> None:
    thresholds = parse_thresholds({"memory.available": "100"})
    first, after, still, over = looks(thresholds, (10, 99), (20, 100), (309, 500), (310, 500))
    assert [one.key.signal for one in first.acting] == ["memory.available"]
    assert first.pressure == after.pressure == still.pressure == Pressure(memory=True)
    assert after.acting == still.acting == over.acting == ()
    assert over.pressure == Pressure()


def test_a_soft_threshold_acts_after_its_grace_period_without_a_break() -> None:
    thresholds = parse_thresholds({}, {"memory.available": "10%"}, {"memory.available": 30})
    found = looks(thresholds, (0, 99), (20, 99), (25, 200), (30, 99), (59, 99), (60, 99))
    assert [bool(one.acting) for one in found] == [False, False, False, False, False, True]
    assert all(one.pressure.memory for one in found)


def test_a_pressure_that_was_acted_on_ends_above_the_minimum_reclaim() -> None:
    thresholds = parse_thresholds({"memory.available": "100"}, minimum_reclaim={"memory.available": "5%"})
    found = looks(thresholds, (0, 120), (10, 99), (20, 149), (30, 150), (40, 149))
    assert [bool(one.acting) for one in found] == [False, True, True, False, False]


def test_an_old_observation_makes_no_one_act() -> None:
    thresholds = parse_thresholds({"memory.available": "100"})
    first = step(ThresholdState(), thresholds, (memory(1, at=5),), mono=5)
    again = step(first.state, thresholds, (memory(1, at=5),), mono=15)
    assert first.acting
    assert not again.acting
    assert again.pressure.memory


def test_memory_is_relieved_first() -> None:
    thresholds = parse_thresholds(
        {"imagefs.available": "10%", "pid.available": "9", "memory.available": "10%"}
    )
    low = [Observation(signal=one.signal, available=1, capacity=1000) for one in thresholds]
    acting = step(ThresholdState(), thresholds, low, mono=0).acting
    assert acting[0].threshold.signal == "memory.available"


def test_each_image_file_system_is_a_place_of_its_own() -> None:
    thresholds = parse_thresholds({"imagefs.available": "10%"})
    disks = [
        Observation(signal="imagefs.available", place=place, available=left, capacity=100)
        for place, left in (("disk 8:1", 5), ("disk 8:2", 50))
    ]
    assert [one.observation.place for one in step(ThresholdState(), thresholds, disks, mono=0).acting] == [
        "disk 8:1"
    ]


observations = st.builds(
    Observation,
    signal=st.sampled_from(sorted(SIGNALS)),
    place=st.sampled_from(PLACES),
    available=st.integers(0, 1000),
    capacity=st.just(1000),
)
hard = st.dictionaries(st.sampled_from(sorted(SIGNALS)), st.sampled_from(["100", "10%", "500"]), min_size=1)


@given(hard, hard, st.lists(st.tuples(st.floats(0.1, 100), st.lists(observations, max_size=6)), max_size=12))
def test_what_acts_is_low_now_and_what_is_low_now_is_reported(
    hard: dict[str, str], soft: dict[str, str], series: list[tuple[float, list[Observation]]]
) -> None:
    thresholds = parse_thresholds(hard, soft, dict.fromkeys(soft, 20.0), {"pid.available": "100"})
    amounts = {(one.signal, one.is_hard): one for one in thresholds}
    state, mono, low_since = ThresholdState(), 0.0, dict[tuple[str, str], float]()
    for wait, amounts_seen in series:
        mono += wait
        seen = [
            Observation(signal=o.signal, place=o.place, available=o.available, capacity=1000, at=mono)
            for o in amounts_seen
        ]
        look = step(state, thresholds, seen, mono=mono, hold_seconds=0)
        state = look.state
        keys = [one.key for one in look.acting]
        assert len(keys) == len(set(keys)) or len({(o.signal, o.place) for o in seen}) < len(seen)
        for one in look.acting:
            most = one.threshold.value(1000) + amount_of(one.threshold.minimum_reclaim, 1000)
            assert one.observation.available < most
        for observation in seen:
            threshold = amounts.get((observation.signal, True))
            if threshold is not None and observation.available < threshold.value(1000):
                assert any(k.signal == observation.signal and k.is_hard for k in keys)
                pressure = look.pressure
                assert {"m": pressure.memory, "p": pressure.pids}.get(observation.signal[0], pressure.disk)
        low_now = {k for k in state.since if not k.is_hard}
        for key in low_now & state.acting:
            assert mono - low_since[(key.signal, key.place)] >= 20
        low_since = {(k.signal, k.place): low_since.get((k.signal, k.place), mono) for k in low_now}


@pytest.mark.parametrize(
    "bad",
    [
        {"cpu.available": "1"},
        {"memory.available": "much"},
        {"nodefs.available": "x%"},
        {"memory.available": "-1Mi"},
    ],
)
def test_thresholds_that_make_no_sense_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="evictionHard"):
        parse_thresholds(bad)
    with pytest.raises(InvalidConfig, match="evictionMinimumReclaim"):
        parse_thresholds({}, minimum_reclaim=bad)


def test_a_soft_threshold_without_a_grace_period_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"evictionSoftGracePeriod\.memory\.available"):
        parse_thresholds({}, {"memory.available": "1Gi"})


@pytest.mark.parametrize("amount", ["0%", "100%", "0"])
def test_a_threshold_of_nothing_or_of_all_there_is_is_switched_off(amount: str) -> None:
    assert parse_thresholds({"nodefs.available": amount}) == ()


def test_a_threshold_of_nothing_is_none() -> None:
    assert parse_thresholds({"memory.available": "0", "nodefs.available": "0%"}) == ()


def test_a_soft_threshold_that_is_off_needs_no_grace_period() -> None:
    assert parse_thresholds({}, {"memory.available": "0%", "nodefs.available": "100%"}) == ()
