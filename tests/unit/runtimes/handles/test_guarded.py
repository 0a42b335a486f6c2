"""Faults of a plugin's code are errors of one call: exceptions of every kind, and wrong values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import (
    Internal,
    PodUid,
    RuntimeCondition,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    Unavailable,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.runtimes.handles.guarded import QUIET_SECONDS, GuardedCalls
from kubeletx.runtimes.plugins.failures import LONGEST_TEXT
from kubeletx.testing import FakeClock, FakeRuntime
from kubeletx_testing.bad_plugins.bad_entries import BadEntriesRuntime
from kubeletx_testing.bad_plugins.bad_events import BadEventsRuntime
from kubeletx_testing.bad_plugins.confuses_objects import ConfusedRuntime
from kubeletx_testing.bad_plugins.exits import ExitingRuntime
from kubeletx_testing.bad_plugins.forgets_results import ForgetfulRuntime
from kubeletx_testing.bad_plugins.interrupts import InterruptingRuntime
from kubeletx_testing.bad_plugins.leaks_exceptions import LeakingRuntime
from kubeletx_testing.bad_plugins.wrong_clock import WrongClockRuntime
from tests.unit.runtimes.conftest import PATIENT, Bench, sandbox_of, unit_of

A = PodUid("uid-a")
LABEL = r"runtime b \(kubeletx-bad 0\.1\.0\)"


@asynccontextmanager
async def bad(make: Callable[..., FakeRuntime], clock: FakeClock) -> AsyncIterator[Bench]:
    """A handle over the bad plugin, in distribution kubeletx-bad 0.1.0, after its first list."""
    bench = Bench(make("b", clock=clock), clock, PATIENT, plugin="kubeletx-bad 0.1.0")
    async with bench.running():
        await bench.until(lambda: bench.handle.is_listed)
        yield bench


async def made_unit(bench: Bench) -> tuple[SandboxId, UnitId]:
    """Make a unit in the backend, past the bad plugin, with the labels of the handle."""
    sandbox_id = bench.runtime.backend.add_sandbox(sandbox_of("b", "a"))
    return sandbox_id, bench.runtime.backend.add_unit(sandbox_id, unit_of("b", "a"))


async def test_a_plugin_that_exits_fails_its_call_and_nothing_else(clock: FakeClock) -> None:
    async with bad(ExitingRuntime, clock) as bench:
        with pytest.raises(Internal, match=LABEL + r": unit_status raised SystemExit: 3 at .*exits\.py:\d+"):
            await bench.handle.unit_status(UnitId("u"))
        assert (await bench.handle.version()).name == "fake"
        assert bench.handle.counts["unit_status"].errors == 1


async def test_interrupts_of_a_plugin_are_errors_of_calls_and_streams(clock: FakeClock) -> None:
    async with bad(InterruptingRuntime, clock) as bench:
        with pytest.raises(Internal, match="start_unit raised KeyboardInterrupt"):
            await bench.handle.start_unit(UnitId("u"))
        with pytest.raises(Internal, match="stop_sandbox raised GeneratorExit") as caught:
            await bench.handle.stop_sandbox(SandboxId("s"))
        assert caught.value.reason == "PluginError"
        await bench.clock.run_for(30)
        assert bench.handle.state.ready
        assert not bench.handle.has_event_stream


async def test_a_call_that_is_cancelled_stays_cancelled(clock: FakeClock) -> None:
    async with bad(FakeRuntime, clock) as bench:
        bench.runtime.script("version", hang=True)
        task = asyncio.create_task(bench.handle.version())
        await bench.clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_coroutine_that_is_closed_passes_generator_exit_on() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    call = GuardedCalls("b").call("start_unit", hang)

    async def begin() -> None:
        call.send(None)

    await asyncio.create_task(begin())
    call.close()


async def test_results_that_are_missing_are_named(clock: FakeClock) -> None:
    async with bad(ForgetfulRuntime, clock) as bench:
        with pytest.raises(Internal, match=LABEL + ": unit_status returned None; must be UnitStatus"):
            await bench.handle.unit_status(UnitId("u"))
        with pytest.raises(
            Internal, match="create_sandbox returned the id None; must be a string of 1 to 256"
        ):
            await bench.handle.create_sandbox(sandbox_of("b", "a"))


async def test_a_status_of_another_unit_and_an_id_of_another_pod_are_refused(clock: FakeClock) -> None:
    async with bad(ConfusedRuntime, clock) as bench:
        _, unit_id = await made_unit(bench)
        await bench.handle.relist()
        with pytest.raises(
            Internal, match=f"returned the status of '{unit_id}'; must be the status of 'other'"
        ):
            await bench.handle.unit_status(UnitId("other"))
        with pytest.raises(Internal, match="which belongs to pod uid-a; must be an id of pod uid-c"):
            await bench.handle.create_sandbox(sandbox_of("b", "c"))


async def test_bad_entries_of_a_list_are_left_out_with_one_warning(clock: FakeClock) -> None:
    with capture_logs() as lines:
        async with bad(BadEntriesRuntime, clock) as bench:
            _, unit_id = await made_unit(bench)
            assert [unit.id for unit in await bench.handle.list_units({})] == [unit_id]
            assert [unit.id for unit in await bench.handle.list_units({})] == [unit_id]
    notes = [line for line in lines if line["event"] == "Plugin returned a wrong value"]
    assert len(notes) == 1
    assert "list_units returned a list whose entry 0 is left out: it is None" in notes[0]["err"]


async def test_a_start_in_the_future_becomes_the_present_time(clock: FakeClock) -> None:
    async with bad(WrongClockRuntime, clock) as bench:
        _, unit_id = await made_unit(bench)
        bench.runtime.backend.start_unit(unit_id)
        with capture_logs() as lines:
            status = await bench.handle.unit_status(unit_id)
    assert abs(status.started_at_ns - clock.now().timestamp() * 1e9) < 1e9
    assert "started_at_ns" in lines[0]["err"]


def test_long_texts_for_users_are_cut() -> None:
    calls, text = GuardedCalls("b"), "x" * 10_000
    summary = UnitSummary(
        id=UnitId("u"),
        sandbox_id=SandboxId("s"),
        uid=A,
        name="main",
        attempt=0,
        created_at_ns=1,
        state=UnitState.EXITED,
    )
    status = calls.checked("unit_status", UnitStatus(summary=summary, reason=text, message=text))
    bad = RuntimeCondition(type="Disk", ok=False, message=text)
    health = RuntimeHealth(runtime_ready=True, network_ready=True, conditions=(bad,) * 100)
    health = calls.checked("health", health)
    version = calls.checked("version", RuntimeVersion(name=text, version="1"))
    assert len(health.conditions) == 64
    for found in (status.reason, status.message, health.conditions[0].message, version.name):
        assert found == f"{text[:LONGEST_TEXT]}… (1808 characters left out)"


async def test_a_missing_file_is_an_error_and_a_lost_connection_is_not_an_answer(clock: FakeClock) -> None:
    async with bad(LeakingRuntime, clock) as bench:
        with (
            capture_logs() as lines,
            pytest.raises(Internal, match="unit_status raised FileNotFoundError"),
        ):
            await bench.handle.unit_status(UnitId("u"))
        with pytest.raises(Unavailable, match="ConnectionResetError: the daemon closed"):
            await bench.handle.start_unit(UnitId("u"))
    warning = next(line for line in lines if line["log_level"] == "warning")
    assert warning["event"] == "Plugin raised an unexpected exception"
    assert "/bad_plugins/leaks_exceptions.py:" in warning["place"]
    assert any("exc_info" in line for line in lines if line["log_level"] == "debug")


async def test_the_same_exception_is_logged_once_in_ten_minutes() -> None:
    now = [0.0]
    calls = GuardedCalls("b", monotonic=lambda: now[0])
    runtime = LeakingRuntime("b")
    with capture_logs() as lines:
        for moment in (0.0, 1.0, 599.0, QUIET_SECONDS):
            now[0] = moment
            with pytest.raises(Internal):
                await calls.call("unit_status", lambda: runtime.unit_status(UnitId("u")))
    assert len([line for line in lines if line["event"] == "Plugin raised an unexpected exception"]) == 2


async def test_items_that_are_not_events_are_left_out_and_the_stream_goes_on(clock: FakeClock) -> None:
    with capture_logs() as lines:
        async with bad(BadEventsRuntime, clock) as bench:
            await bench.clock.run_for(3)
            assert bench.handle.has_event_stream
            _, unit_id = await bench.start_pod(note=True)
            bench.runtime.backend.exit_unit(unit_id, 1)
            await bench.clock.run_for(1)
            seen = [event for _, _, event in bench.listener.pods if isinstance(event, RuntimeEvent)]
            assert [event.unit_id for event in seen] == [unit_id]
    notes = [line["err"] for line in lines if line["event"] == "Plugin returned a wrong value"]
    assert len(notes) == 1
    assert "events yielded None; must be RuntimeEvent" in notes[0]


async def test_a_method_that_is_not_a_coroutine_function_is_named() -> None:
    plain: Any = lambda: None  # noqa: E731 - as a plugin that forgot async
    with pytest.raises(
        Internal, match="start_unit returned None and not a coroutine; define it with async def"
    ):
        await GuardedCalls("b").call("start_unit", plain)
