"""How the usage of a pod is divided among its sessions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.sessions.meter import PodMeter, PodReading, SessionCosts

KEYS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "clients", "read"]),
        st.sampled_from(KEYS),
        st.integers(0, 100),  # seconds since the step before
        st.integers(0, 50),  # CPU seconds since the step before
        st.integers(0, 1000),  # memory at a reading
    ),
    max_size=40,
)


def a_reading(cpu: float | None, memory: int | None = 0) -> PodReading:
    return PodReading(cpu_seconds=cpu, memory_bytes=memory)


def a_sum(costs: dict[str, SessionCosts]) -> SessionCosts:
    total = SessionCosts()
    for one in costs.values():
        total = total.plus(one)
    return total


@given(STEPS)
def test_sessions_get_no_more_than_the_pod_used_and_all_of_it_while_one_is_open(
    steps: list[tuple[str, str, int, int, int]],
) -> None:
    meter, at, cpu = PodMeter(0.0, a_reading(0.0)), 0.0, 0.0
    is_open: dict[str, float] = {}
    seconds, opened, most, was_idle, read_at, peak = 0.0, 0, 0.0, False, 0.0, 0
    for step, key, passed, used, memory in steps:
        was_idle = was_idle or (not is_open and passed > 0)
        seconds += passed * len(is_open)
        at, cpu = at + passed, cpu + used
        match step:
            case "open" if key not in is_open:
                meter.open(key, at)
                is_open[key], opened = at, opened + 1
            case "close" if key in is_open:
                meter.close(key, at)
                del is_open[key]
            case "clients" if key in is_open:
                meter.set_clients(key, at, 2)
            case "read":
                meter.read(a_reading(cpu, memory), at)
                if at > read_at:
                    most, read_at, peak = cpu, at, max(peak, memory)
    meter.read(a_reading(None, None), at)  # the pod is gone: time and memory are counted, CPU is not known
    total = a_sum(meter.take())
    assert total.opened == opened
    assert total.open_seconds == pytest.approx(seconds)
    assert total.client_seconds <= 2 * total.open_seconds + 1e-6
    assert total.cpu_seconds <= most + 1e-6
    assert total.memory_byte_seconds <= peak * at + 1e-6
    if not was_idle and at > 0:
        assert total.cpu_seconds == pytest.approx(most)
    assert meter.take() == {}


@given(st.lists(st.floats(0.1, 50), min_size=2, max_size=10), st.integers(1, 5))
def test_sessions_that_are_open_together_share_equally(times: list[float], count: int) -> None:
    meter, keys = PodMeter(0.0, a_reading(0.0, 100)), [f"s{n}" for n in range(count)]
    for key in keys:
        meter.open(key, 0.0)
    ats = [sum(times[:n]) for n in range(len(times) + 1)]
    for _, at in pairwise(ats):
        meter.read(a_reading(2 * at, 100), at)
    taken = meter.take()
    assert len({round(costs.cpu_seconds, 6) for costs in taken.values()}) == 1
    assert a_sum(taken).cpu_seconds == pytest.approx(2 * ats[-1])
    assert a_sum(taken).memory_byte_seconds == pytest.approx(100 * ats[-1])


def test_a_session_of_half_the_time_gets_half_of_what_two_share() -> None:
    meter = PodMeter(0.0, a_reading(10.0, 100))
    meter.open("a", 0.0, clients=1)
    meter.open("b", 30.0)
    meter.close("b", 60.0)
    meter.set_clients("a", 60.0, 3)
    meter.read(a_reading(22.0, 300), 120.0)
    assert meter.take() == {
        "a": SessionCosts(
            opened=1,
            open_seconds=120.0,
            client_seconds=60.0 + 3 * 60.0,
            cpu_seconds=12.0 * 105 / 120,
            memory_byte_seconds=200.0 * 105,
        ),
        "b": SessionCosts(
            opened=1, open_seconds=30.0, cpu_seconds=12.0 * 15 / 120, memory_byte_seconds=200.0 * 15
        ),
    }


def test_a_frozen_pod_costs_memory_only() -> None:
    meter = PodMeter(0.0, a_reading(5.0, 1000))
    meter.open("a", 0.0)
    meter.read(a_reading(5.0, 1000), 100.0)
    costs = meter.take()["a"]
    assert (costs.cpu_seconds, costs.memory_byte_seconds) == (0.0, 100_000.0)


def test_cpu_before_the_first_reading_and_counters_that_fall_are_not_attributed() -> None:
    meter = PodMeter(0.0)
    meter.open("a", 0.0)
    meter.read(a_reading(5.0), 1.0)
    meter.read(a_reading(2.0), 2.0)  # another set of containers is summed
    meter.read(a_reading(3.0), 3.0)
    assert meter.take()["a"].cpu_seconds == 1.0


def test_a_time_that_is_earlier_than_before_counts_as_the_same() -> None:
    meter = PodMeter(10.0)
    meter.open("a", 10.0)
    meter.set_clients("a", 4.0, 1)
    meter.close("a", 12.0)
    assert meter.take()["a"] == SessionCosts(opened=1, open_seconds=2.0, client_seconds=2.0)
