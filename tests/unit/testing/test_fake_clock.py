import asyncio
from datetime import timedelta

from kubeletx.api import Clock
from kubeletx.testing import FakeClock
from kubeletx.testing.clock import START


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock: Clock = FakeClock()
    before = clock.monotonic()
    await asyncio.sleep(0)
    assert clock.monotonic() == before
    assert clock.now() == START


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.settle()
    clock.advance(4.9)
    await clock.settle()
    assert not task.done()
    clock.advance(0.1)
    await task
    assert clock.sleepers == 0


async def test_run_for_lets_a_task_sleep_many_times() -> None:
    clock = FakeClock()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.run_for(3.5)
    assert [second - ticks[0] for second in ticks] == [0, 1, 2]
    task.cancel()


async def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = FakeClock()
    before = clock.monotonic()
    clock.jump(-3600)
    assert clock.now() == START - timedelta(hours=1)
    assert clock.monotonic() == before


async def test_with_auto_advance_no_one_waits_and_order_is_kept() -> None:
    clock = FakeClock(auto_advance=True)
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    await asyncio.gather(nap(3600), nap(1), nap(60))
    assert woken == [1, 60, 3600]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.settle()
    task.cancel()
    await clock.settle()
    assert clock.next_wake_seconds is None
