"""What answers of a probe mean (P1 to P4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.types.core import Probe
from kubeletx.pods.probes.outcome import (
    ProbeKind,
    ProbeOutcome,
    ProbeResult,
    Tally,
    Timing,
    first_tally,
    is_on_hold,
    tally,
)

RESULTS = st.sampled_from(list(ProbeOutcome))
KINDS = st.sampled_from(list(ProbeKind))


def play(kind: ProbeKind, results: list[ProbeOutcome], timing: Timing) -> Tally:
    now = first_tally(kind)
    for one in results:
        now = tally(now, ProbeResult(one), timing)
    return now


def test_the_defaults_are_those_of_the_api() -> None:
    assert Timing.of(Probe()) == Timing(
        initial_delay_seconds=0,
        period_seconds=10,
        timeout_seconds=1,
        success_threshold=1,
        failure_threshold=3,
    )


def test_first_values_are_not_ready_alive_and_not_known_to_be_started() -> None:
    assert first_tally(ProbeKind.READINESS).value is False
    assert first_tally(ProbeKind.LIVENESS).value is True
    assert first_tally(ProbeKind.STARTUP).value is None
    assert first_tally(ProbeKind.READINESS, True).value is True


def test_thresholds_count_answers_in_a_row() -> None:
    timing = Timing(success_threshold=2, failure_threshold=3)
    s, f = ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE
    assert play(ProbeKind.READINESS, [s], timing).value is False
    assert play(ProbeKind.READINESS, [s, f, s], timing).value is False
    assert play(ProbeKind.READINESS, [s, s], timing).value is True
    assert play(ProbeKind.READINESS, [s, s, f, f], timing).value is True
    assert play(ProbeKind.READINESS, [s, s, f, f, s, f, f, f], timing).value is False


def test_a_warning_is_a_success() -> None:
    assert play(ProbeKind.READINESS, [ProbeOutcome.WARNING], Timing()).value is True


@given(kind=KINDS, results=st.lists(RESULTS, max_size=20), noise=st.lists(st.integers(0, 20), max_size=6))
def test_errors_and_outages_change_nothing(
    kind: ProbeKind, results: list[ProbeOutcome], noise: list[int]
) -> None:
    counted = [r for r in results if ProbeResult(r).counts]
    noisy = list(counted)
    for place in noise:
        noisy.insert(place % (len(noisy) + 1), ProbeOutcome.UNKNOWN if place % 2 else ProbeOutcome.SUSPENDED)
    assert play(kind, noisy, Timing()) == play(kind, counted, Timing())


@given(kind=KINDS, results=st.lists(RESULTS, max_size=30), s=st.integers(1, 4), f=st.integers(1, 4))
def test_a_decided_value_always_ends_a_row_of_its_threshold(
    kind: ProbeKind, results: list[ProbeOutcome], s: int, f: int
) -> None:
    timing = Timing(success_threshold=s, failure_threshold=f)
    now = first_tally(kind)
    for one in results:
        after = tally(now, ProbeResult(one), timing)
        if after.value is not now.value:
            assert after.is_decided
            assert after.row >= (s if after.value else f)
        now = after


def test_only_a_failed_liveness_and_a_decided_startup_rest() -> None:
    yes, no = Tally(value=True, is_decided=True), Tally(value=False, is_decided=True)
    assert is_on_hold(ProbeKind.LIVENESS, no)
    assert not is_on_hold(ProbeKind.LIVENESS, yes)
    assert is_on_hold(ProbeKind.STARTUP, no)
    assert is_on_hold(ProbeKind.STARTUP, yes)
    assert not is_on_hold(ProbeKind.STARTUP, first_tally(ProbeKind.STARTUP))
    assert not is_on_hold(ProbeKind.READINESS, no)
