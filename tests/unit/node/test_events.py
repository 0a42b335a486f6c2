import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import EventSink, ObjectRef
from kubeletx.node.event_table import METADATA
from kubeletx.node.events import COMBINED, EventLimits, EventRecorder
from kubeletx.store import Store
from kubeletx.testing import FakeClock

WEB = ObjectRef(kind="Pod", namespace="default", name="web", uid="u1", field="spec.containers{main}")


def recorder(**limits: float) -> EventRecorder:
    return EventRecorder(clock=FakeClock(), node_name="node-1", limits=EventLimits(**limits))  # type: ignore[arg-type]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "state.db", [METADATA], later_seconds=0.01)
    yield store
    await store.close()


async def test_equal_events_are_one_row_with_a_count() -> None:
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="node-1")
    sink: EventSink = events
    first = clock.now()
    for _ in range(3):
        sink.record(WEB, type="Warning", reason="BackOff", message="Back-off restarting")
        clock.advance(10)
    (event,) = events.list_events()
    assert (event.count, event.type, event.reason, event.message) == (
        3,
        "Warning",
        "BackOff",
        "Back-off restarting",
    )
    assert event.first_timestamp == first
    assert event.last_timestamp is not None
    assert (event.last_timestamp - first).total_seconds() == 20
    assert event.involved_object.field_path == "spec.containers{main}"
    assert event.source.host == "node-1"
    assert event.metadata.namespace == "default"


async def test_many_different_messages_of_one_reason_share_a_row() -> None:
    events = recorder()
    for number in range(30):
        ref = replace(WEB, field=f"spec.containers{{{number % 2}}}")
        events.record(ref, type="Warning", reason="FailedMount", message=f"try {number}")
    found = events.list_events()
    assert len(found) == 10
    assert found[-1].message == f"{COMBINED}try 29"
    assert found[-1].count == 21


async def test_different_messages_share_a_row_until_ten_minutes_pass_without_one() -> None:
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="node-1")
    for number in range(12):
        clock.advance(590)
        events.record(WEB, type="Warning", reason="FailedMount", message=f"try {number}")
    assert events.list_events()[-1].message == f"{COMBINED}try 11"
    clock.advance(601)
    events.record(WEB, type="Warning", reason="FailedMount", message="later")
    assert events.list_events()[-1].message == "later"


async def test_rows_are_bounded_in_all_and_for_each_object() -> None:
    events = recorder(rows=100, rows_per_object=5)
    for pod in range(200):
        ref = ObjectRef(kind="Pod", name=f"p{pod}", namespace="default", uid=f"u{pod}")
        for number in range(9):
            events.record(ref, type="Normal", reason=f"R{number}", message="m")
    assert len(events.list_events()) == 100
    last = ObjectRef(kind="Pod", name="p199", namespace="default")
    assert [event.reason for event in events.list_events(last)] == ["R4", "R5", "R6", "R7", "R8"]


async def test_the_oldest_by_last_repetition_go_first() -> None:
    events = recorder(rows=2)
    for reason in ("A", "B", "A", "C"):
        events.record(WEB, type="Normal", reason=reason, message="m")
    assert {event.reason for event in events.list_events()} == {"A", "C"}


async def test_a_watcher_sees_events_from_now_on_and_a_slow_one_the_newest_count() -> None:
    events = recorder()
    events.record(WEB, type="Normal", reason="Old", message="m")
    watch = events.watch_events()
    reading = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    events.record(WEB, type="Normal", reason="Pulling", message="m")
    assert (await reading).reason == "Pulling"
    for _ in range(5):
        events.record(WEB, type="Normal", reason="Started", message="m")
    assert (await anext(watch)).count == 5
    await watch.aclose()


async def test_a_watch_may_begin_with_what_was_recorded_since_a_time() -> None:
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="node-1")
    events.record(WEB, type="Normal", reason="Old", message="m")
    events.record(WEB, type="Normal", reason="Again", message="m")
    await clock.run_for(10)
    since = clock.now()
    events.record(WEB, type="Normal", reason="New", message="m")
    events.record(WEB, type="Normal", reason="Again", message="m")
    watch = events.watch_events(since=since)
    assert [(await anext(watch)).reason for _ in range(2)] == ["New", "Again"]
    reading = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    events.record(WEB, type="Normal", reason="Newest", message="m")
    assert (await reading).reason == "Newest"
    await watch.aclose()


async def test_events_survive_a_restart(store: Store) -> None:
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="node-1", store=store)
    events.record(WEB, type="Normal", reason="Pulled", message="m")
    events.record(WEB, type="Normal", reason="Pulled", message="m")
    clock.advance(5)
    events.record(WEB, type="Normal", reason="Started", message="m")
    events.flush()
    again = EventRecorder(clock=clock, node_name="node-1", store=store)
    await store.write(lambda _connection: None)
    await again.load()
    assert again.list_events() == events.list_events()
    again.record(WEB, type="Normal", reason="Pulled", message="m")
    assert [(e.reason, e.count) for e in again.list_events()] == [("Started", 1), ("Pulled", 3)]


async def test_what_was_dropped_is_dropped_from_the_database_too(store: Store) -> None:
    limits = EventLimits(rows=10, rows_per_object=10)
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="n", store=store, limits=limits)
    for number in range(25):
        clock.advance(1)
        events.record(WEB, type="Normal", reason=f"R{number}", message="m")
        events.flush()
    await store.write(lambda _connection: None)
    again = EventRecorder(clock=clock, node_name="n", store=store)
    await again.load()
    assert [e.reason for e in again.list_events()] == [f"R{number}" for number in range(15, 25)]


async def test_a_burst_of_ten_thousand_is_one_write(store: Store) -> None:
    events = EventRecorder(clock=FakeClock(), node_name="n", store=store)
    for number in range(10_000):
        ref = ObjectRef(kind="Pod", name=f"p{number % 100}", namespace="default", uid=f"u{number % 100}")
        events.record(ref, type="Warning", reason="Unhealthy", message="m")
    assert sum(event.count or 0 for event in events.list_events()) == 10_000
    events.flush()
    await store.write(lambda _connection: None)
    assert store.dropped == 0
