"""Usage of the last minutes is measured only while a client asks for it, and a quarter of an hour is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeletx.agent.backend.usage_ring import UsageRing
from kubeletx.api import Unavailable
from kubeletx.server.views import MeasuredUsage, PodUsage, UsageView
from kubeletx.testing import FakeClock


class Meter:
    """Measures a machine whose memory grows by one byte, and the pods in `pods`."""

    def __init__(self) -> None:
        self.taken = 0
        self.pods = ["uid-1"]
        self.fails = False

    async def __call__(self) -> UsageView:
        if self.fails:
            raise Unavailable("no answer")
        self.taken += 1
        usage = MeasuredUsage(cpu_millicores=5, memory_bytes=7)
        pods = [PodUsage(namespace="n", name=uid, runtime="r", usage=usage, uid=uid) for uid in self.pods]
        return UsageView(node_name="n", node=MeasuredUsage(memory_bytes=self.taken), pods=tuple(pods))


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def ring(meter: Meter, clock: FakeClock) -> AsyncIterator[UsageRing]:
    ring = UsageRing(meter, clock)
    yield ring
    await ring.close()


async def ask_for(ring: UsageRing, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds // 10):
        ring.read(0)
        await clock.run_for(10)


async def test_nothing_is_measured_before_the_first_question_and_a_minute_after_the_last(
    ring: UsageRing, meter: Meter, clock: FakeClock
) -> None:
    await clock.run_for(60)
    assert meter.taken == 0
    assert ring.read(0).times == ()
    await clock.run_for(300)
    assert meter.taken == 6
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "usage ring"]
    assert ring.read(0).times == ()


async def test_a_question_gets_only_later_samples(ring: UsageRing, clock: FakeClock) -> None:
    await ask_for(ring, clock, 50)
    everything = ring.read(0)
    machine = next(series for series in everything.series if not series.uid)
    assert machine.memory == tuple(range(1, len(everything.times) + 1))
    assert machine.cpu == (None,) * len(everything.times)
    assert ring.read(everything.next).times == ()
    assert ring.read(everything.next - 2).series[0].memory == machine.memory[-2:]
    assert ring.read(everything.next + 100).times == everything.times


async def test_a_quarter_of_an_hour_is_kept(ring: UsageRing, meter: Meter, clock: FakeClock) -> None:
    await ask_for(ring, clock, 300)
    meter.pods = ["uid-2"]
    await ask_for(ring, clock, 600)
    pods = {series.uid: series.memory for series in ring.read(0).series}
    assert {len(values) for values in pods.values()} == {90}
    assert pods["uid-1"][-1] is None
    assert pods["uid-2"][0] is None
    await ask_for(ring, clock, 600)
    assert "uid-1" not in {series.uid for series in ring.read(0).series}


async def test_a_measurement_that_fails_is_left_out(ring: UsageRing, meter: Meter, clock: FakeClock) -> None:
    await ask_for(ring, clock, 20)
    before = ring.read(0).next
    meter.fails = True
    await ask_for(ring, clock, 20)
    assert ring.read(0).next == before
    meter.fails = False
    await ask_for(ring, clock, 20)
    assert ring.read(0).next > before
