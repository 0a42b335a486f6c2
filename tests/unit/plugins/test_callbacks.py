"""Calls of plugin code: deadline, errors, counts, and the name of what holds the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Clock, Internal, KubeletxError, SystemClock, TimedOut, Unavailable
from kubeletx.plugins.callbacks import CallbackCounts, Callbacks
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until


def callbacks(
    clock: Clock | None = None, counts: CallbackCounts | None = None, stop_seconds: float = 1.0
) -> Callbacks:
    registration = Registration(hook=Hook.HEALTH_CHECK, name="disk", factory=object, plugin="acme")
    return Callbacks(
        registration, clock or FakeClock(), counts or CallbackCounts(), stop_seconds=stop_seconds
    )


def raising(error: BaseException) -> Callable[[], Awaitable[Any]]:
    async def work() -> None:
        raise error

    return work


async def works() -> str:
    return "fine"


async def test_a_call_gives_its_result_and_is_counted() -> None:
    counts = CallbackCounts()
    assert await callbacks(counts=counts).call("check", works, seconds=1) == "fine"
    ((labels, durations),) = counts.durations.items()
    assert labels == ("acme", "disk", "check")
    assert sum(durations.counts) == 1
    assert not counts.errors


@pytest.mark.parametrize(
    ("error", "expected", "words"),
    [
        (ValueError("bad"), Internal, "ValueError: bad"),
        (OSError("gone"), Internal, r"OSError: gone at .*/plugins/test_callbacks\.py:\d+"),
        (ConnectionResetError("gone"), Unavailable, "gone"),
        (TimeoutError("late"), TimedOut, "late"),
        (SystemExit(3), Internal, "SystemExit: 3"),
        (KeyboardInterrupt(), Internal, "KeyboardInterrupt"),
        (asyncio.CancelledError(), Internal, "CancelledError"),
        (TimedOut("of its own"), TimedOut, "of its own"),
    ],
)
async def test_whatever_it_raises_is_an_error_of_the_plugin(
    error: BaseException, expected: type[KubeletxError], words: str
) -> None:
    counts = CallbackCounts()
    calls = callbacks(counts=counts)
    with pytest.raises(expected, match=words):
        await calls.call("check", raising(error), seconds=1)
    assert calls.state.word == "degraded"
    assert re.search(words, calls.state.reason)
    assert counts.errors == {("acme", "disk", "check", "error"): 1}


async def test_an_error_without_words_is_named_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words either")

    with pytest.raises(Internal, match="Mute"):
        await callbacks().call("check", raising(Mute()), seconds=1)


async def test_what_is_not_a_coroutine_is_an_error_of_the_plugin() -> None:
    with pytest.raises(Internal, match="TypeError"):
        await callbacks().call("check", lambda: 3, seconds=1)  # type: ignore[arg-type, return-value]


async def test_a_success_ends_the_degradation() -> None:
    calls = callbacks()
    with pytest.raises(Internal):
        await calls.call("check", raising(ValueError()), seconds=1)
    await calls.call("check", works, seconds=1)
    assert calls.state.word == "ready"


async def test_a_call_that_hangs_is_cancelled_at_its_deadline() -> None:
    clock, counts = FakeClock(), CallbackCounts()
    calls, ended = callbacks(clock, counts), asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(calls.call("check", hangs, seconds=10))
    await clock.run_for(9.9)
    assert not task.done()
    await clock.run_for(0.2)
    with pytest.raises(TimedOut, match="health-check/disk: check: did not return within 10 s"):
        await task
    await asyncio.wait_for(ended.wait(), 1)
    assert counts.errors == {("acme", "disk", "check", "timeout"): 1}


async def test_a_call_that_ignores_its_cancellation_is_left_and_not_made_again() -> None:
    clock = FakeClock()
    calls, release = callbacks(clock), asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    first = asyncio.create_task(calls.call("check", stubborn, seconds=1))
    await clock.run_for(1.1)
    with pytest.raises(TimedOut):
        await first
    with pytest.raises(Unavailable, match="an earlier call has not ended"):
        await calls.call("check", works, seconds=1)
    release.set()
    await clock.settle()
    assert await calls.call("check", works, seconds=1) == "fine"


async def test_a_cancelled_caller_cancels_the_call() -> None:
    clock, ended = FakeClock(), asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(callbacks(clock).call("check", hangs, seconds=10))
    await clock.settle()
    task.cancel()
    await asyncio.wait_for(ended.wait(), 1)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


async def test_the_task_of_a_call_is_named_after_plugin_registration_and_callback() -> None:
    async def name() -> str:
        task = asyncio.current_task()
        return task.get_name() if task is not None else ""

    assert await callbacks().call("check", name, seconds=1) == "plugin acme: health-check/disk check"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(1)])
def test_a_factory_that_raises_fails_its_registration_alone(error: BaseException) -> None:
    def factory() -> object:
        raise error

    calls = callbacks()
    calls.make(factory)
    assert not calls.is_made
    assert calls.state.word == "failed"
    assert type(error).__name__ in calls.state.reason


async def test_an_abandoned_call_is_counted_until_it_ends_and_logged() -> None:
    ends, counts = asyncio.Event(), CallbackCounts()
    calls = callbacks(SystemClock(), counts, stop_seconds=0.01)

    async def swallows() -> None:
        while not ends.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ends.wait()

    with capture_logs() as lines, pytest.raises(TimedOut):
        await calls.call("check", swallows, seconds=0.01)
    source = asyncio.create_task(calls.run("run", swallows), name="source")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.cancel()
    caller = asyncio.create_task(calls.call("show", swallows, seconds=60), name="caller")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with capture_logs() as lines:
        await asyncio.wait((source, caller))
        await until(lambda: len([one for one in lines if "Abandoned" in one["event"]]) >= 2)
    assert calls.abandoned == {"check": 1, "run": 1, "show": 1}
    assert counts.abandoned[("acme", "disk", "run")] == 1
    assert {one["callback"] for one in lines if one["event"] == "Abandoned call of plugin"} >= {"run", "show"}
    ends.set()
    await until(lambda: not calls.abandoned)
    assert not any(counts.abandoned.values())


async def test_a_cancelled_call_that_ends_is_not_reported() -> None:
    calls = callbacks(SystemClock(), stop_seconds=0.01)
    with capture_logs() as lines:
        with pytest.raises(TimedOut):
            await calls.call("check", asyncio.Event().wait, seconds=0.01)
        await until(lambda: not calls.abandoned)
    assert not [one for one in lines if one["event"] == "Abandoned call of plugin"]
