"""Times of flows by a clock that jumps, and after a change of the leader."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.cluster import FlowClock
from kubeletx.remedy.model import FenceFlow, NodeFence
from kubeletx.testing import FakeClock
from tests.unit.remedy.desk import SETTINGS, Desk
from tests.unit.remedy.trial import READY_FENCE, Trial

FENCE = NodeFence(node="n1", metadata=ObjectMeta(uid="u"), flow=FenceFlow(waited=40.0))


def test_a_clock_that_jumps_makes_nothing_happen_early() -> None:
    clock = FakeClock()
    flows, start = FlowClock(clock), clock.now()
    flows.times("n1", FENCE, is_well=True)
    clock.jump(86_400)  # also what a machine that slept sees
    assert flows.now() == start
    clock.advance(7)
    times = flows.times("n1", FENCE, is_well=True)
    assert (times.waited, times.quiet, flows.now() - start) == (47.0, 7.0, timedelta(seconds=7))


def test_a_new_leader_goes_on_from_what_was_recorded_never_earlier() -> None:
    clock = FakeClock()
    clock.advance(1000)  # time in which no controller ran
    assert FlowClock(clock).times("n1", FENCE, is_well=False).waited == 40.0


def test_another_status_and_a_relapse_begin_at_zero() -> None:
    clock = FakeClock()
    flows = FlowClock(clock)
    flows.times("n1", FENCE, is_well=True)
    clock.advance(20)
    assert flows.times("n1", FENCE, is_well=False).quiet == 0.0
    changed = replace(FENCE, flow=FenceFlow(status="Done"))
    assert flows.times("n1", changed, is_well=True).waited == 0.0


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_that_is_wrong_from_the_start_shortens_no_period(hours: int) -> None:
    desk = Desk()
    at = desk.clock.now()
    desk.clock.jump(3600 * hours)
    desk.set("n1", "Unknown", last_transition_time=at)
    async with desk.leading():
        await desk.clock.run_for(4)
        assert desk.calls == []
        await desk.clock.run_for(2)
        assert desk.calls == ["n1/fc-off"]


async def test_a_new_leader_counts_the_period_that_its_predecessor_has_recorded() -> None:
    desk = Desk()
    desk.configured = Trial(text=READY_FENCE.replace("5s", "25s"), settings=SETTINGS).configured
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(22)
    async with desk.leading(desk.new_controller()):
        await desk.clock.run_for(2)
        assert desk.calls == []
        await desk.clock.run_for(5)
        assert desk.calls == ["n1/fc-off"]
