"""The rule that follows probes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import RuntimeHealth
from kubeletx.runtimes.handles.health import FAILED_PROBES, Health, RuntimeState, Silence, cordon, step

START = datetime(2030, 1, 1, tzinfo=UTC)
SILENCE = Silence(reason="TimedOut", message="no answer")
WELL = RuntimeHealth(runtime_ready=True, network_ready=True)

outcomes = st.one_of(
    st.just(SILENCE),
    st.builds(RuntimeHealth, runtime_ready=st.booleans(), network_ready=st.booleans()),
)


def after(
    steps: list[tuple[RuntimeHealth | Silence, float]], health: Health | None = None
) -> list[RuntimeState]:
    health = health or Health(state=RuntimeState(since=START))
    states, mono = [health.state], 0.0
    for outcome, seconds in steps:
        mono += seconds
        health = step(health, outcome, wall=START + timedelta(seconds=mono), mono=mono)
        states.append(health.state)
    return states


def test_one_failed_probe_is_forgiven_and_the_second_is_an_outage() -> None:
    states = after([(WELL, 5), (SILENCE, 5), (SILENCE, 1), (WELL, 1)])
    assert [s.reachable for s in states] == [False, True, True, False, True]
    assert states[3].reason == "TimedOut"


def test_ten_silent_seconds_are_an_outage_after_a_single_probe() -> None:
    assert [s.reachable for s in after([(WELL, 5), (SILENCE, 11)])] == [False, True, False]


def test_a_runtime_that_says_no_is_believed_at_once() -> None:
    states = after([(WELL, 5), (RuntimeHealth(runtime_ready=False, network_ready=True), 5)])
    assert (states[-1].ready, states[-1].reachable, states[-1].reason) == (False, True, "RuntimeNotReady")


@given(st.lists(st.tuples(outcomes, st.floats(0.1, 4)), max_size=40))
def test_ready_means_reachable_and_said_so(steps: list[tuple[RuntimeHealth | Silence, float]]) -> None:
    for state in after(steps):
        assert not state.ready or state.reachable
        assert state.reachable or (not state.ready and not state.network_ready)


@given(st.lists(st.tuples(outcomes, st.floats(0.1, 4)), max_size=40))
def test_since_changes_exactly_when_ready_does(steps: list[tuple[RuntimeHealth | Silence, float]]) -> None:
    states = after(steps)
    for old, new in itertools.pairwise(states):
        assert (old.ready != new.ready) == (old.since != new.since)


@given(st.integers(FAILED_PROBES, 50), st.floats(0.1, 5))
def test_an_outage_of_any_length_changes_readiness_once_each_way(count: int, seconds: float) -> None:
    states = after([(WELL, 5), *([(SILENCE, seconds)] * count), (WELL, 1)])
    changes = sum(old.ready != new.ready for old, new in itertools.pairwise(states[1:]))
    assert changes == 2


@given(st.lists(st.tuples(outcomes, st.floats(0.1, 4)), max_size=20))
def test_a_cordon_stays_whatever_the_probes_say(steps: list[tuple[RuntimeHealth | Silence, float]]) -> None:
    assert all(s.cordoned for s in after(steps, cordon(Health(state=RuntimeState(since=START)), True)))
