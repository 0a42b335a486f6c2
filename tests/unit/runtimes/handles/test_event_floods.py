"""A runtime that sends too many events: they are merged, the stream is closed, others are not slowed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from kubeletx.api import EventKind, PodUid, RuntimeEvent, SandboxId, UnitId, names
from kubeletx.runtimes.handles.event_pacer import MOST_HELD, POD_BURST, RUNTIME_BURST, EventPacer
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.runtimes.handles.watching import EVENTS_BURST
from kubeletx.testing import FakeClock, FakeRuntime
from kubeletx_testing.bad_plugins.ends_events import EndingEventsRuntime
from kubeletx_testing.bad_plugins.floods_events import FloodingRuntime, unknown_events
from tests.unit.runtimes.conftest import Bench

A = PodUid("uid-a")


class PacerBench:
    """A pacer with what it passed on, by pod, and the number of events that it held."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.passed: list[tuple[PodUid, RuntimeEvent]] = []
        self.held = 0
        self.pacer = EventPacer(
            lambda uid, event: self.passed.append((uid, event)), clock=self.clock, held=self._count
        )

    def _count(self, _detail: str) -> None:
        self.held += 1


def changed(unit: str = "u", kind: EventKind = EventKind.CHANGED, at_ns: int = 0) -> RuntimeEvent:
    return RuntimeEvent(kind=kind, unit_id=UnitId(unit), uid=A, at_ns=at_ns)


async def test_a_hundred_pods_that_start_together_are_not_slowed() -> None:
    bench = PacerBench()
    for number in range(100):
        for kind in (EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED):
            bench.pacer.take(PodUid(f"uid-{number}"), changed(f"u{number}", kind))
            bench.pacer.take(
                PodUid(f"uid-{number}"), RuntimeEvent(kind=kind, sandbox_id=SandboxId(f"s{number}"))
            )
    assert len(bench.passed) == 600
    assert bench.held == 0


async def test_events_of_one_pod_are_merged_and_the_newest_is_passed_on() -> None:
    bench = PacerBench()
    for number in range(1000):
        bench.pacer.take(A, changed(at_ns=number))
    assert len(bench.passed) == POD_BURST
    await bench.clock.run_for(0.2)
    assert len(bench.passed) == POD_BURST + 1
    assert bench.passed[-1][1].at_ns == 999


async def test_no_kind_of_event_is_lost_when_events_are_merged() -> None:
    bench = PacerBench()
    for number in range(1000):
        bench.pacer.take(A, changed("one", EventKind.CHANGED, number))
        bench.pacer.take(A, changed("two", EventKind.STOPPED, number))
    del bench.passed[:]
    await bench.clock.run_for(1)
    assert [(event.unit_id, event.kind) for _, event in bench.passed] == [
        ("one", EventKind.CHANGED),
        ("two", EventKind.STOPPED),
    ]


async def test_a_pod_without_many_events_passes_while_another_floods() -> None:
    bench = PacerBench()
    for number in range(1000):
        bench.pacer.take(A, changed(at_ns=number))
    bench.pacer.take(PodUid("uid-b"), changed("b"))
    assert bench.passed[-1][0] == "uid-b"


async def test_all_pods_together_have_a_limit_too() -> None:
    bench = PacerBench()
    for number in range(3 * RUNTIME_BURST):
        bench.pacer.take(PodUid(f"uid-{number}"), changed(f"u{number}"))
    assert len(bench.passed) == RUNTIME_BURST
    await bench.clock.run_for(1)
    assert 150 <= len(bench.passed) - RUNTIME_BURST <= 250
    await bench.clock.run_for(30)
    assert len(bench.passed) == 3 * RUNTIME_BURST


async def test_held_events_of_one_pod_use_bounded_memory() -> None:
    bench = PacerBench()
    for number in range(10_000):
        bench.pacer.take(A, changed(f"u{number}"))
    del bench.passed[:]
    await bench.clock.run_for(1)
    assert len(bench.passed) == MOST_HELD
    assert bench.passed[-1][1].unit_id == "u9999"


async def test_nothing_is_passed_on_for_a_pod_that_has_ended_or_after_the_end() -> None:
    bench = PacerBench()
    for number in range(100):
        bench.pacer.take(A, changed(at_ns=number))
        bench.pacer.take(PodUid("uid-b"), changed("b", at_ns=number))
    del bench.passed[:]
    bench.pacer.forget(A)
    await bench.clock.run_for(1)
    assert {uid for uid, _ in bench.passed} == {"uid-b"}
    for number in range(100):
        bench.pacer.take(A, changed(at_ns=number))
    del bench.passed[:]
    bench.pacer.close()
    await bench.clock.run_for(1)
    assert bench.passed == []
    assert bench.clock.sleepers == 0


# --- a whole handle ---


async def flooded(clock: FakeClock, *, waits: bool = True) -> Bench:
    return Bench(FloodingRuntime("one", clock=clock, waits=waits), clock)


def own_unit(unit_id: UnitId) -> Callable[[], RuntimeEvent]:
    return lambda: RuntimeEvent(kind=EventKind.CHANGED, unit_id=unit_id, uid=A)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("about", ["own", "unknown", "resync"])
async def test_a_flood_closes_the_stream_and_the_runtime_is_listed_instead(
    clock: FakeClock, about: str, *, waits: bool
) -> None:
    bench = await flooded(clock, waits=waits)
    runtime = bench.runtime
    assert isinstance(runtime, FloodingRuntime)
    async with bench.running():
        await bench.until(lambda: bench.handle.has_event_stream)
        await clock.run_for(5)
        _, unit_id = await bench.start_pod(note=True)
        counts, events = Counter(runtime.counts), bench.listener.pods
        runtime.flood(
            {
                "own": own_unit(unit_id),
                "unknown": unknown_events(),
                "resync": lambda: RuntimeEvent(kind=EventKind.RESYNC),
            }[about]
        )
        with capture_logs() as logs:
            for _ in range(300):
                await clock.run_for(0.1)
        assert runtime.sent <= 4 * EVENTS_BURST
        assert runtime.counts["events"] - counts["events"] <= 3
        assert 20 <= runtime.counts["list_units"] - counts["list_units"] <= 35
        assert len(events) <= 4 * POD_BURST
        assert bench.handle.throttled_events > 0
        warned = [one for one in logs if one["log_level"] == "warning"]
        assert [one["event"] for one in warned] == ["Throttled events of runtime"]
        assert bench.sink.reasons("one").count(names.Event.RUNTIME_EVENTS_THROTTLED) == 1


async def test_the_warning_of_a_lasting_flood_is_repeated_after_ten_minutes(clock: FakeClock) -> None:
    bench = await flooded(clock)
    assert isinstance(bench.runtime, FloodingRuntime)
    async with bench.running():
        await bench.until(lambda: bench.handle.is_listed)
        bench.runtime.flood(unknown_events())
        await clock.run_for(700)
        assert bench.sink.reasons("one").count(names.Event.RUNTIME_EVENTS_THROTTLED) == 2
        assert bench.runtime.counts["events"] <= 10


async def test_what_happens_during_a_flood_is_seen_by_the_lists(clock: FakeClock) -> None:
    bench = await flooded(clock)
    assert isinstance(bench.runtime, FloodingRuntime)
    async with bench.running():
        await bench.until(lambda: bench.handle.is_listed)
        _, unit_id = await bench.start_pod(note=True)
        bench.runtime.flood(unknown_events())
        await clock.run_for(1)
        bench.runtime.backend.exit_unit(unit_id, 1)
        del bench.listener.pods[:]
        await clock.run_for(2)
        assert [uid for _, uid, _ in bench.listener.pods] == [A]


async def test_a_burst_of_a_thousand_pods_keeps_the_stream(clock: FakeClock) -> None:
    bench = Bench(FakeRuntime("one", clock=clock), clock, Limits())  # its deadlines are of real time
    async with bench.running():
        await bench.until(lambda: bench.handle.has_event_stream)
        for number in range(1000):
            await bench.start_pod(f"p{number}", note=True)
        await clock.run_for(1)
        for unit_id in list(bench.runtime.backend.units):
            bench.runtime.backend.exit_unit(unit_id, 1)
        await clock.run_for(1)
        assert bench.handle.has_event_stream
        assert bench.runtime.counts["events"] == 1
        assert sum(event is not None for _, _, event in bench.listener.pods) == 1000
        assert bench.handle.throttled_events == 0


async def test_a_stream_that_ends_at_once_is_opened_ever_more_slowly(clock: FakeClock) -> None:
    bench = Bench(EndingEventsRuntime("one", clock=clock), clock)
    async with bench.running():
        with capture_logs() as logs:
            await clock.run_for(60)
        assert 5 <= bench.runtime.counts["events"] <= 15
        assert bench.runtime.counts["list_units"] <= 70
        assert bench.runtime.counts["health"] <= 30
        assert [one["event"] for one in logs if one["log_level"] == "warning"] == [
            "Lost event stream of runtime"
        ]


async def test_a_stream_that_never_waits_lets_other_tasks_run(clock: FakeClock) -> None:
    """Counts the turns of the event loop that another runtime's call takes, and the events read in each of them."""
    bench = await flooded(clock, waits=False)
    runtime = bench.runtime
    assert isinstance(runtime, FloodingRuntime)
    other = Bench(FakeRuntime("two", clock=clock), clock)
    async with bench.running(), other.running():
        await bench.until(lambda: bench.handle.is_listed and other.handle.is_listed)
        await clock.run_for(5)
        usual = await _turns(other, "a")
        runtime.flood(unknown_events())
        before = runtime.sent
        beside = await _turns(other, "b")
        assert beside <= 1.2 * usual
        assert runtime.sent > before
        assert (runtime.sent - before) / beside <= 250


async def _turns(bench: Bench, pod: str) -> int:
    """Number of turns of the event loop in which a pod's calls are made."""
    task = asyncio.create_task(bench.start_pod(pod, note=True))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns
