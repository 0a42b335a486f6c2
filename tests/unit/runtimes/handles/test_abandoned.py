"""Calls of a plugin whose coroutine swallows its cancellation are abandoned at their deadline."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from structlog.testing import capture_logs

from kubeletx.api import Internal, TimedOut, Unavailable
from kubeletx.runtimes.handles.abandoned import (
    MOST_ABANDONED,
    MOST_OF_METHOD,
    AbandonableCalls,
    PluginCall,
    find_plugin_call,
    plugin_call,
    plugin_function,
)
from kubeletx.runtimes.handles.calls import CallClass, CallGate
from kubeletx.testing import FakeClock, FakeRuntime
from kubeletx_testing.bad_plugins.swallows_cancellation import CancellationSwallowingRuntime
from kubeletx_testing.waiting import let_others_work
from tests.unit.runtimes.conftest import FAST, Bench

SECONDS = 0.01
SHORT = msgspec.structs.replace(FAST, grace_seconds=SECONDS)


@pytest.fixture
async def bad() -> AsyncIterator[CancellationSwallowingRuntime]:
    runtime = CancellationSwallowingRuntime()
    yield runtime
    runtime.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def list_units(gate: CallGate, bad: CancellationSwallowingRuntime) -> object:
    return await gate.call("list_units", CallClass.QUERY, SECONDS, lambda: bad.list_units({}))


async def test_a_call_that_swallows_its_cancellation_fails_at_its_deadline_and_is_counted(
    bad: CancellationSwallowingRuntime,
) -> None:
    gate = CallGate("one", SHORT)
    with capture_logs() as lines, pytest.raises(TimedOut, match="list_units did not return within"):
        async with asyncio.timeout(60):
            await list_units(gate, bad)
    assert gate.abandoned.running == {"list_units": 1}
    assert [(line["event"], line["method"]) for line in lines] == [("Abandoned call of plugin", "list_units")]
    bad.release()
    async with asyncio.timeout(60):
        while gate.abandoned.running:
            await asyncio.sleep(0)


async def test_a_caller_that_is_cancelled_is_not_held(bad: CancellationSwallowingRuntime) -> None:
    gate = CallGate("one", SHORT)
    caller = asyncio.create_task(gate.call("list_units", CallClass.QUERY, 60, lambda: bad.list_units({})))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert gate.abandoned.running == {"list_units": 1}


async def test_a_method_with_many_abandoned_calls_is_not_called_again(
    bad: CancellationSwallowingRuntime,
) -> None:
    gate = CallGate("one", SHORT)
    for _ in range(MOST_OF_METHOD):
        with pytest.raises(TimedOut):
            await list_units(gate, bad)
    with pytest.raises(Unavailable, match="was not called: 8 earlier calls have not ended"):
        await list_units(gate, bad)
    assert gate.abandoned.running == {"list_units": MOST_OF_METHOD}


async def test_many_abandoned_calls_are_a_problem_until_the_runtime_is_opened_again(
    bad: CancellationSwallowingRuntime,
) -> None:
    calls = AbandonableCalls("one", SHORT.grace_seconds)
    for number in range(MOST_ABANDONED + 1):
        assert calls.problem() == ""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await calls.run(f"method{number}", lambda: bad.list_units({}))
    assert calls.problem().startswith("9 calls did not end at their deadlines")
    calls.opened()
    assert calls.problem() == ""
    assert sum(calls.running.values()) == MOST_ABANDONED + 1


async def test_a_call_may_clean_up_after_its_cancellation_and_is_not_counted() -> None:
    gate, ended = CallGate("one", SHORT), []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(TimedOut):
        await gate.call("tidy", CallClass.CHANGING, SECONDS, tidy)
    assert ended == [True]
    assert gate.abandoned.running == {}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
async def test_an_error_of_any_class_reaches_the_caller_and_not_the_event_loop(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(Internal, match=f"runtime one: fail raised {type(error).__name__}"):
        await CallGate("one", SHORT).call("fail", CallClass.CHANGING, 60, fail)


async def test_a_closed_channel_is_not_a_cancellation() -> None:
    async def closed() -> None:
        raise asyncio.CancelledError

    gate = CallGate("one", SHORT)
    with pytest.raises(Unavailable, match="the connection was closed"):
        await gate.call("closed", CallClass.QUERY, 60, closed)


@pytest.mark.parametrize(
    "methods", [("list_units",), ("events",), ("close",), ("list_units", "events", "close")]
)
async def test_a_runtime_ends_although_its_plugin_swallows_cancellation(
    methods: tuple[str, ...], clock: FakeClock
) -> None:
    runtime = CancellationSwallowingRuntime(methods=methods)
    bench = Bench(runtime, clock, SHORT)
    async with asyncio.timeout(60):
        async with bench.running():
            await bench.clock.run_for(5)
    runtime.release()
    async with asyncio.timeout(60):
        while bench.handle.abandoned:
            await asyncio.sleep(0)


async def test_the_running_call_is_found_from_the_stack() -> None:
    async def inside() -> PluginCall | None:
        return find_plugin_call(sys._getframe())

    assert await plugin_call("one", "unit_status", inside) == PluginCall("one", "unit_status")
    assert plugin_function("one", "traits", lambda: find_plugin_call(sys._getframe())) == ("one", "traits")
    assert await CallGate("one", SHORT).call("probe", CallClass.PROBE, 60, inside) == ("one", "probe")
    own = CallGate("one", SHORT, abandons=False)
    assert await own.call("probe", CallClass.PROBE, 60, inside) == ("one", "probe")
    assert find_plugin_call(sys._getframe()) is None


async def test_the_end_of_an_abandoned_call_is_a_reason_to_list_the_runtime(clock: FakeClock) -> None:
    runtime, released = FakeRuntime("one", clock=clock), asyncio.Event()
    bench = Bench(runtime, clock, SHORT)

    async def hibernate() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    async with bench.running():
        await bench.clock.run_for(5)
        caller = asyncio.create_task(bench.handle.change("hibernate", hibernate), name="caller")
        await let_others_work()
        caller.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await caller
        assert bench.handle.abandoned == {"hibernate": 1}
        lists = runtime.counts["list_units"]
        released.set()
        await bench.until(lambda: runtime.counts["list_units"] == lists + 1, seconds=2)
