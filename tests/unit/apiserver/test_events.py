"""Events on their way to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, KubeletxError, PermissionDenied, TimedOut, Unavailable
from kubeletx.apiserver.events import TRIES, EventReporter
from kubeletx.kube.types.core import ObjectMeta
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectReference
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until


class Server:
    """Says what it is told to, then keeps events by name."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.answers: list[KubeletxError] = []
        self.events: dict[str, int] = {}
        self.times: dict[str, datetime | None] = {}
        self.asked = 0
        self.problem = ""

    async def create(self, path: str, value: Event, type_: Any) -> None:
        self._answer()
        if value.metadata.name in self.events:
            raise AlreadyExists("it is there")
        self.events[value.metadata.name] = value.count or 0

    async def patch(self, path: str, value: dict[str, Any], type_: Any, *, kind: Any) -> None:
        self._answer()
        name = path.rpartition("/")[2]
        self.events[name], self.times[name] = value["count"], value["lastTimestamp"]

    async def pause(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def _answer(self) -> None:
        self.asked += 1
        if self.answers:
            raise self.answers.pop(0)


async def report(server: Server, *events: Event) -> EventReporter:
    """Until nothing is left to send."""

    async def watch() -> AsyncIterator[Event]:
        for one in events:
            yield one
        await asyncio.Event().wait()

    reporter = EventReporter(server, watch, clock=server.clock)  # type: ignore[arg-type]
    task = asyncio.create_task(reporter.run())
    async with asyncio.timeout(60):
        await server.clock.settle()
        await until(lambda: reporter.is_idle)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return reporter


def event(name: str, count: int = 1, kind: str = "Pod", about: str = "web") -> Event:
    return Event(
        metadata=ObjectMeta(name=name, namespace="default"),
        involved_object=ObjectReference(kind=kind, name=about),
        count=count,
    )


@pytest.mark.parametrize("answer", [Unavailable("away"), TimedOut("slow")])
async def test_an_event_outlives_a_server_that_is_away_or_slow(answer: KubeletxError) -> None:
    server = Server(FakeClock(auto_advance=True))
    server.answers = [answer] * (TRIES - 1)
    reporter = await report(server, event("a"), event("b"), event("r", kind="Runtime"))
    assert (server.events, reporter.dropped) == ({"a": 1, "b": 1}, 0)


async def test_an_event_that_arrived_although_no_one_said_so_is_counted_up() -> None:
    server = Server(FakeClock(auto_advance=True))
    server.events["a"] = 1
    server.answers = [TimedOut("slow")]
    reporter = await report(server, event("a", count=2))
    assert (server.events, reporter.dropped) == ({"a": 2}, 0)


async def test_an_event_of_an_earlier_agent_that_comes_again_is_counted_up_with_its_time() -> None:
    server = Server(FakeClock(auto_advance=True))
    server.events["web.1"] = 4
    again = replace(event("web.1", 5), last_timestamp=server.clock.now())
    await report(server, again)
    assert server.events == {"web.1": 5}
    assert server.times == {"web.1": again.last_timestamp}


async def test_what_is_refused_or_cannot_be_sent_for_long_is_dropped_and_counted() -> None:
    server = Server(FakeClock(auto_advance=True))
    server.answers = [PermissionDenied("no"), *[Unavailable("away")] * TRIES]
    reporter = await report(server, event("a"), event("b"), event("c"))
    assert (server.events, reporter.dropped) == ({"c": 1}, 2)


async def test_of_the_events_about_one_object_25_are_sent_and_then_one_every_five_minutes() -> None:
    server = Server(FakeClock())

    async def watch() -> AsyncIterator[Event]:
        for _ in range(49):
            yield event(f"a.{_}")
        yield event("b", about="other")
        await server.clock.sleep(301)
        for _ in range(9):
            yield event(f"later.{_}")
        await asyncio.Event().wait()

    reporter = EventReporter(server, watch, clock=server.clock)  # type: ignore[arg-type]
    task = asyncio.create_task(reporter.run())
    await server.clock.run_for(400)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert list(server.events) == [*(f"a.{_}" for _ in range(25)), "b", "later.0"]


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_the_event_that_was_being_sent_when_the_agent_ends_is_sent(is_under_way: bool) -> None:
    """`is_under_way`: its request has no answer yet; else it waits for its next try."""
    server = Server(FakeClock())
    server.answers = [] if is_under_way else [Unavailable("away")]
    create, tries = server.create, 0

    async def silent_at_first(path: str, value: Event, type_: Any) -> None:
        nonlocal tries
        tries += 1
        if is_under_way and tries == 1:
            await asyncio.Event().wait()
        await create(path, value, type_)

    server.create = silent_at_first  # type: ignore[method-assign]

    async def watch() -> AsyncIterator[Event]:
        yield replace(event("a"), type="Warning")
        await asyncio.Event().wait()

    reporter = EventReporter(server, watch, clock=server.clock)  # type: ignore[arg-type]
    task = asyncio.create_task(reporter.run())
    await server.clock.settle()
    assert server.events == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (server.events, reporter.dropped) == ({"a": 1}, 0)
