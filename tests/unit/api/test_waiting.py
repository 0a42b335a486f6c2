"""Waits end with the first of several things, and leave nothing running."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import SystemClock, TimedOut, first_of, sleep_or, within
from kubeletx.testing import FakeClock


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_those_that_ended_first_are_returned_and_the_others_have_ended(
    waits: list[tuple[int, bool, bool]],
) -> None:
    """Each wait: turns of the event loop, whether it fails, and whether it is a task of the caller."""

    async def wait(index: int, turns: int, fails: bool) -> int:
        running.add(index)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            if fails:
                raise ValueError(index)
            return index
        finally:
            running.discard(index)

    async def run() -> None:
        given = [
            asyncio.create_task(wait(index, turns + 1, fails), name="given") if is_given else None
            for index, (turns, fails, is_given) in enumerate(waits)
        ]
        mixed = [task or wait(index, *waits[index][:2]) for index, task in enumerate(given)]
        ended = await first_of("several", *mixed)
        assert any(ended)
        for index, (future, (_, fails, _)) in enumerate(zip(ended, waits, strict=True)):
            if future is not None:
                assert isinstance(future.exception(), ValueError) if fails else future.result() == index
            assert index not in running or given[index] is not None
        await asyncio.gather(*(task for task in given if task), return_exceptions=True)

    running: set[int] = set()
    asyncio.run(run())


async def test_cancellation_ends_the_waits_and_not_the_callers_own_task() -> None:
    own = asyncio.create_task(asyncio.Event().wait(), name="own")
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(first_of("several", own, wait()), name="waiting")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
    assert not own.cancelled()
    own.cancel()
    await asyncio.gather(own, return_exceptions=True)


async def test_a_sleep_ends_with_its_time_or_its_event() -> None:
    clock, event = FakeClock(), asyncio.Event()
    sleeping = asyncio.create_task(sleep_or(clock, 5, event), name="sleeping")
    await clock.run_for(5)
    assert await sleeping is False
    sleeping = asyncio.create_task(sleep_or(clock, 5, event), name="sleeping")
    await clock.run_for(4)
    event.set()
    assert await sleeping is True
    assert await sleep_or(clock, 5, event) is True


async def test_a_deadline_names_what_was_late() -> None:
    with pytest.raises(TimedOut, match=r"the server did not answer within 0\.01 s"):
        async with within(0.01, "the server did not answer"):
            await SystemClock().sleep(1000)
    with pytest.raises(TimeoutError):
        async with within(1000, "the server did not answer"):
            raise TimeoutError
