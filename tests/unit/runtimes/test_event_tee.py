"""`EventTee`: bounded, coalesced copies of a runtime's events."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import EventKind, RuntimeEvent, UnitId
from kubeletx.runtimes.handles.event_tee import RESYNC, EventSubscription, EventTee


def event(unit: str, kind: EventKind = EventKind.STARTED, at_ns: int = 0) -> RuntimeEvent:
    return RuntimeEvent(kind=kind, unit_id=UnitId(unit), at_ns=at_ns)


async def unread(events: EventSubscription) -> list[RuntimeEvent]:
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await anext(events))
        except TimeoutError:
            return found


async def test_every_subscriber_gets_each_event_after_a_first_resync() -> None:
    tee = EventTee()
    one, two = tee.subscribe(), tee.subscribe()
    tee.put(event("a"))
    tee.put(event("a", EventKind.STOPPED))
    for subscriber in (one, two):
        assert await unread(subscriber) == [RESYNC, event("a"), event("a", EventKind.STOPPED)]


async def test_an_event_replaces_an_equal_one_that_is_not_read_and_moves_to_the_end() -> None:
    tee = EventTee()
    with tee.subscribe() as events:
        await anext(events)
        for one in (event("a", at_ns=1), event("b", at_ns=2), event("a", at_ns=3)):
            tee.put(one)
        assert await unread(events) == [event("b", at_ns=2), event("a", at_ns=3)]


async def test_a_slow_subscriber_gets_one_resync_and_does_not_delay_another() -> None:
    tee = EventTee()
    slow, quick = tee.subscribe(limit=3), tee.subscribe()
    await anext(slow), await anext(quick)
    for number in range(4):
        tee.put(event(str(number)))
        assert await anext(quick) == event(str(number))
    assert await unread(slow) == [RESYNC]
    tee.put(event("later"))
    assert await unread(slow) == [event("later")]


async def test_a_resync_of_the_runtime_covers_what_came_before() -> None:
    tee = EventTee()
    events = tee.subscribe()
    tee.put(event("a"))
    tee.put(RESYNC)
    tee.put(event("b"))
    assert await unread(events) == [RESYNC, event("b")]


async def test_a_closed_subscription_ends_a_waiting_reader_and_gets_nothing_more() -> None:
    tee = EventTee()
    events = tee.subscribe()
    await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    events.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    tee.put(event("a"))
    assert [one async for one in events] == []
