"""Work that is ended when nothing comes, and what counts as something."""

import asyncio

import pytest

from kubeletx.api import Channel, Unavailable
from kubeletx.streaming.idle import Idle
from kubeletx.testing import FakeClock, FakeSession


async def test_work_is_cancelled_once_nothing_came_for_too_long() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    async with asyncio.timeout(60):
        await Idle(0.01).guard(work())
    assert cleaned == ["up"]


async def test_work_goes_on_while_bytes_come_and_its_end_is_the_end() -> None:
    idle = Idle(0.5)
    rounds: list[int] = []

    async def work() -> None:
        for number in range(15):
            await asyncio.sleep(0.05)
            idle.touch()
            rounds.append(number)

    async with asyncio.timeout(60):
        await idle.guard(work())
    assert len(rounds) == 15


async def test_a_failure_of_the_work_is_reported() -> None:
    async def work() -> None:
        raise Unavailable("gone")

    with pytest.raises(Unavailable, match="gone"):
        await Idle(None).guard(work())


async def test_data_and_sizes_of_a_watched_session_count() -> None:
    clock = FakeClock()
    idle = Idle(3600, clock.monotonic)
    far = FakeSession()
    session = idle.watch(far)

    for act in (session.write(b"in"), session.resize(80, 24)):
        clock.advance(1000)
        await act
        assert idle.left_seconds == 3600
    clock.advance(1000)
    far.send(Channel.STDOUT, b"out")
    far.finish(3)
    assert [piece async for piece in session.output()] == [(Channel.STDOUT, b"out")]
    assert idle.left_seconds == 3600
    assert await session.wait() == 3
    await session.close()
    assert (far.closed, far.sizes) == (True, [(80, 24)])
