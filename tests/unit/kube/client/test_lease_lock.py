"""The lock of a Lease: one holder at a time, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Conflict, InvalidConfig, NotFound, Unavailable
from kubeletx.kube.client.lease_lock import LeaseLock, LockLost, LockTimes, new_identity
from kubeletx.kube.types.lease import Lease
from kubeletx.testing.clock import FakeClock

TIMES = LockTimes(duration_seconds=15, renew_seconds=10.0, retry_seconds=2.0)


class LeaseServer:
    """One Lease with versions, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0

    def write(self, lease: Lease) -> Lease:
        self.version += 1
        self.lease = replace(lease, metadata=replace(lease.metadata, resource_version=str(self.version)))
        return self.lease

    def get(self) -> Lease:
        if self.lease is None:
            raise NotFound("no lease")
        return self.lease

    def create(self, lease: Lease) -> Lease:
        if self.lease is not None:
            raise AlreadyExists("there is a lease")
        return self.write(lease)

    def replace(self, lease: Lease) -> Lease:
        if self.get().metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("another version")
        return self.write(lease)


class LeaseLine:
    """A client on a line that loses requests and answers, delays both and lets cancelled requests arrive."""

    def __init__(self, server: LeaseServer, clock: FakeClock, draw: random.Random | None = None) -> None:
        self._server = server
        self._clock = clock
        self.draw = draw
        self.is_cut = False
        self.loses_answers = False
        self.back_seconds = 0.0

    async def get(self, path: str, type_: type[Any]) -> Any:
        return await self._ask(self._server.get)

    async def create(self, path: str, value: Any, type_: type[Any]) -> Any:
        return await self._ask(lambda: self._server.create(value))

    async def replace(self, path: str, value: Any, type_: type[Any]) -> Any:
        return await self._ask(lambda: self._server.replace(value))

    async def _ask(self, action: Callable[[], Lease]) -> Lease:
        await asyncio.sleep(0)
        if self.is_cut:
            raise Unavailable("the line is cut")
        answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        there, back, fate = self._delays()

        def arrive() -> None:
            try:
                found = action()
            except (NotFound, AlreadyExists, Conflict) as error:
                outcome: Lease | Exception = error
            else:
                outcome = found
            if fate != "lost answer":
                self._clock.call_at(self._clock.monotonic() + back, lambda: deliver(outcome))

        def deliver(outcome: Lease | Exception) -> None:
            if answer.done():
                return
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        if fate == "error":
            raise Unavailable("503")
        if fate != "lost request":
            self._clock.call_at(self._clock.monotonic() + there, arrive)
        return await answer

    def _delays(self) -> tuple[float, float, str]:
        if self.loses_answers:
            return 0.0, 0.0, "lost answer"
        if self.draw is None:
            return 0.0, self.back_seconds, "well"
        fate = self.draw.choices(["well", "slow", "lost request", "lost answer", "error"], [84, 4, 4, 4, 4])[
            0
        ]
        longest = 8.0 if fate == "slow" else 0.1
        return self.draw.uniform(0, longest), self.draw.uniform(0, longest), fate


class WallClock:
    """The model's clock with a wall time of its own."""

    def __init__(self, clock: FakeClock, offset_seconds: float) -> None:
        self._clock = clock
        self.offset = timedelta(seconds=offset_seconds)

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        return self._clock.call_at(when, callback)


def lock(
    client: LeaseLine, clock: FakeClock | WallClock, identity: str, seed: int = 0, times: LockTimes = TIMES
) -> LeaseLock:
    return LeaseLock(
        client,
        namespace="kube-system",
        name="leader",
        identity=identity,
        clock=clock,
        times=times,
        draw=random.Random(seed),
    )


class Two:
    """Two candidates on lines without faults."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = LeaseServer()
        self.lines = [LeaseLine(self.server, self.clock) for _ in range(2)]
        self.one, self.other = (
            lock(line, self.clock, name) for line, name in zip(self.lines, ("one", "other"), strict=True)
        )


async def test_the_first_candidate_holds_and_the_other_waits() -> None:
    two = Two()
    assert await two.one.try_acquire()
    assert not await two.other.try_acquire()
    assert (two.one.is_held, two.other.is_held) == (True, False)
    assert two.one.holder == two.other.holder == "one"


async def test_of_two_that_create_the_lease_at_once_one_holds() -> None:
    two = Two()
    got = await asyncio.gather(two.one.try_acquire(), two.other.try_acquire())
    assert sorted(got) == [False, True]


async def test_a_holder_without_renewal_loses_the_lock_before_another_takes_it() -> None:
    two = Two()
    await two.one.try_acquire()
    assert not await two.other.try_acquire()
    two.clock.advance(9.9)
    assert two.one.is_held
    two.clock.advance(0.1)
    assert not two.one.is_held
    assert not await two.other.try_acquire()
    two.clock.advance(4.9)
    assert not await two.other.try_acquire()
    two.clock.advance(0.1)
    assert await two.other.try_acquire()
    with pytest.raises(LockLost):
        await two.one.renew()


async def test_a_renewal_prolongs_the_lock() -> None:
    two = Two()
    await two.one.try_acquire()
    for _ in range(10):
        two.clock.advance(5)
        await two.one.renew()
        assert not await two.other.try_acquire()
    assert two.one.is_held


async def test_the_time_of_a_slow_renewal_counts_from_before_the_request() -> None:
    two = Two()
    await two.one.try_acquire()
    two.clock.advance(5)
    two.lines[0].back_seconds = 4
    task = asyncio.create_task(two.one.renew())
    await two.clock.run_for(4)
    await task
    await two.clock.run_for(5.9)
    assert two.one.is_held
    await two.clock.run_for(0.1)
    assert not two.one.is_held


async def test_a_renewal_without_an_answer_prolongs_nothing() -> None:
    two = Two()
    await two.one.try_acquire()
    two.lines[0].loses_answers = True
    task = asyncio.create_task(two.one.renew())
    await two.clock.run_for(9.9)
    assert two.one.is_held  # by the first write; nothing is known of the second
    await two.clock.run_for(0.2)
    assert not two.one.is_held
    task.cancel()


async def test_a_candidate_trusts_only_its_own_clock() -> None:
    two = Two()
    ahead = WallClock(two.clock, 3600)
    await two.one.try_acquire()
    far = lock(two.lines[1], ahead, "far")
    assert not await far.try_acquire()
    two.clock.advance(5)
    await two.one.renew()
    assert not await far.try_acquire()


async def test_a_wall_clock_that_jumps_ahead_ends_the_lock() -> None:
    """A machine that slept has a monotonic clock that did not."""
    two = Two()
    await two.one.try_acquire()
    two.clock.jump(60)
    assert not two.one.is_held
    with pytest.raises(LockLost):
        await two.one.renew()


async def test_a_wall_clock_that_goes_back_changes_nothing() -> None:
    two = Two()
    await two.one.try_acquire()
    two.clock.jump(-3600)
    await two.one.renew()
    before = two.server.get().spec.renew_time
    two.clock.advance(5)
    await two.one.renew()
    after = two.server.get().spec.renew_time
    assert before is not None
    assert after is not None
    assert after > before
    two.clock.advance(10)
    assert not two.one.is_held


async def test_a_released_lock_is_free_at_once() -> None:
    two = Two()
    await two.one.try_acquire()
    await two.one.release()
    assert not two.one.is_held
    assert await two.other.try_acquire()
    spec = two.server.get().spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("other", 15, 1)


async def test_release_leaves_the_lock_of_another_alone() -> None:
    two = Two()
    await two.one.try_acquire()
    await two.other.try_acquire()
    two.clock.advance(20)
    assert await two.other.try_acquire()
    await two.one.release()
    assert two.other.is_held
    assert two.server.get().spec.holder_identity == "other"


async def test_a_write_whose_answer_was_lost_is_found_again() -> None:
    two = Two()
    await two.one.try_acquire()
    two.lines[0].loses_answers = True
    task = asyncio.create_task(two.one.renew())
    await two.clock.run_for(1)
    task.cancel()
    two.lines[0].loses_answers = False
    await two.clock.run_for(1)
    await two.one.renew()
    assert two.one.is_held


async def test_work_runs_under_the_lock_and_its_result_comes_back() -> None:
    two = Two()

    async def work() -> str:
        assert two.one.is_held
        await two.clock.sleep(100)
        assert two.one.is_held
        return "done"

    task = asyncio.create_task(two.one.run(work))
    await two.clock.run_for(101)
    assert await task == "done"
    assert two.server.get().spec.holder_identity == ""


async def test_work_is_cancelled_when_the_lock_is_lost_before_another_gets_it() -> None:
    two = Two()
    ended: list[float] = []
    got: list[float] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(two.clock.monotonic())

    async def other() -> None:
        await two.other.acquire()
        got.append(two.clock.monotonic())

    task = asyncio.create_task(two.one.run(work))
    await two.clock.run_for(5)
    waiting = asyncio.create_task(other())
    await two.clock.run_for(5)
    two.lines[0].is_cut = True
    await two.clock.run_for(30)
    with pytest.raises(LockLost):
        await task
    await waiting
    assert ended[0] + 4 < got[0]


async def test_cancelling_ends_the_work_and_frees_the_lock() -> None:
    two = Two()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(two.one.run(work), name="run")
    await two.clock.run_for(1)
    task.cancel()
    await two.clock.run_for(1)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert await two.other.try_acquire()


async def test_an_error_of_the_work_comes_out_and_the_lock_is_free() -> None:
    two = Two()

    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await two.one.run(work)
    assert await two.other.try_acquire()


@pytest.mark.parametrize(
    "times", [{"duration_seconds": 10, "renew_seconds": 10.0}, {"renew_seconds": 2.4}, {"retry_seconds": 0.0}]
)
def test_times_that_cannot_work_are_refused(times: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="lock times"):
        LockTimes(**times)


def test_no_two_identities_are_equal() -> None:
    assert len({new_identity() for _ in range(100)}) == 100


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_at_most_one_of_two_candidates_holds(seed: int) -> None:
    asyncio.run(History(seed).play())


class History:
    """Two candidates on bad lines: requests are lost, come late or although they were given up; wall clocks jump."""

    BAD_SECONDS, QUIET_SECONDS = 120.0, 15.0
    TIMES = LockTimes(duration_seconds=5, renew_seconds=4.0, retry_seconds=0.4)

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock, self.server = FakeClock(), LeaseServer()
        self.walls = [WallClock(self.clock, self.draw.uniform(-100, 100)) for _ in range(2)]
        self.lines = [LeaseLine(self.server, self.clock, self.draw) for _ in range(2)]
        self.locks = [
            lock(line, wall, name, seed, self.TIMES)
            for line, wall, name in zip(self.lines, self.walls, ("one", "other"), strict=True)
        ]
        self.working: set[str] = set()

    async def play(self) -> None:
        tasks = [asyncio.create_task(self._compete(one)) for one in self.locks]
        trouble = asyncio.create_task(self._make_trouble())
        await self._pass(self.BAD_SECONDS, tasks)
        trouble.cancel()
        for line in self.lines:
            line.is_cut, line.draw = False, None
        held = await self._pass(self.QUIET_SECONDS, tasks)
        for task in (*tasks, trouble):
            task.cancel()
        await asyncio.gather(*tasks, trouble, return_exceptions=True)
        assert held, "no candidate holds the lock on a quiet line"

    async def _pass(self, seconds: float, tasks: list[asyncio.Task[None]]) -> bool:
        """Let time pass from one event to the next and look after each; whether the lock is held at the end."""
        end = self.clock.monotonic() + seconds
        holders: list[str] = []
        while self.clock.monotonic() < end:
            await self.clock.settle()
            self.clock.advance(min(0.5, self.clock.next_wake_seconds or 0.5))
            holders = [one.identity for one in self.locks if one.is_held]
            assert len(holders) <= 1, f"{holders} hold at {self.clock.monotonic()}"
            for task in tasks:
                assert not task.done(), task
        return bool(holders)

    async def _make_trouble(self) -> None:
        """Cut the holder off for about as long as its lock lasts, or move a wall clock; again and again."""
        while True:
            await self.clock.sleep(self.draw.uniform(0, 4))
            which = 1 if self.locks[1].is_held else 0
            if self.draw.random() < 0.15:
                self.walls[which].offset += timedelta(seconds=self.draw.uniform(-40, 40))
            self.lines[which].is_cut = True
            await self.clock.sleep(self.draw.uniform(3, 9))
            self.lines[which].is_cut = False

    async def _compete(self, one: LeaseLock) -> None:
        async def work() -> None:
            assert not self.working, f"{one.identity} works beside {self.working}"
            self.working.add(one.identity)
            try:
                await self.clock.sleep(self.draw.uniform(1, 60))
            finally:
                self.working.discard(one.identity)

        while True:
            try:
                await one.run(work)
            except LockLost:
                await self.clock.sleep(self.draw.uniform(0, 1))
