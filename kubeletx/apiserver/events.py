"""`EventReporter`: sends events of this node to the API server, with lower priority than statuses of pods.

    watch ──► waiting, one of each event ──► POST events, or PATCH of one that was counted up
                 warnings at once; others when it is quiet, or after ten seconds

The node's own store is authoritative; the API server gets a copy with low priority. The start of a pod produces an
event for each step, and each event costs the API server as much as a status. Events therefore wait until a second has
passed without a status or another event. An event whose count grows while it waits is sent once.

As by a kubelet, of the events about one object 25 are sent, and after that one every five minutes; a repetition counts
too. The others are only in the node's own store.

An event that expired at the API server (after an hour) is created again. An event that cannot be sent after `TRIES`
attempts is dropped and counted; if too many events wait, so is the oldest. When the agent ends, it sends the waiting
events within `LAST_SECONDS`, if the API server answers.

Source: client-go, tools/record/event.go, events_cache.go (EventSourceObjectSpamFilter).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, KubeletxError, NotFound, TimedOut, Unavailable
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import EVENTS
from kubeletx.kube.types.core import ObjectMeta
from kubeletx.kube.types.event import Event
from kubeletx.runtimes.handles.event_pacer import BurstLimit

log = structlog.get_logger(__name__)

TRIES = 12
KNOWN = 4096
OBJECTS = 4096
OBJECT_BURST, OBJECT_PER_SECOND = 25.0, 1 / 300
"""Limit of events about one object. `OBJECTS`: number of objects for which it is remembered."""
WAITING = 1000
QUIET_SECONDS = 1.0
MOST_SECONDS = 10.0
"""Longest time that an event waits for `QUIET_SECONDS` without other traffic."""
LAST_SECONDS = 2.0
"""Seconds for sending the waiting events when the agent ends."""
KINDS = frozenset({"Pod", "Node"})
"""Kinds of objects whose events are sent; other objects of the agent do not exist in the API server."""
WARNING = "Warning"


class _Waiting(msgspec.Struct):
    """Event that waits to be sent, with its newest count, and the monotonic time at which it began to wait."""

    event: Event
    since: float


class EventReporter:
    """Sends the events of this node to the API server; `run` is its only task.

    `dropped`: number of events that were never sent.
    """

    def __init__(
        self,
        client: KubeClient,
        watch_events: Callable[[], AsyncIterator[Event]],
        *,
        clock: Clock,
        busy_at: Callable[[], float] = lambda: float("-inf"),
    ) -> None:
        """`watch_events`: yields events of this agent; a repeated event comes again with a higher count.

        `busy_at`: returns the monotonic time at which pod statuses, which go first, were last sent.
        """
        self._client = client
        self._watch_events = watch_events
        self._clock = clock
        self._busy_at = busy_at
        self._warnings: OrderedDict[str, _Waiting] = OrderedDict()
        self._others: OrderedDict[str, _Waiting] = OrderedDict()
        self._news = asyncio.Event()
        self._news_at = float("-inf")
        self._sent: OrderedDict[str, str] = OrderedDict()
        self._limits: OrderedDict[tuple[str | None, ...], BurstLimit] = OrderedDict()
        self._backoff = server_backoff(first=1.0, cap=10.0)
        self._current: Event | None = None
        """The event in flight, which the API server may not have received."""
        self.dropped = 0

    @property
    def is_idle(self) -> bool:
        return not self._warnings and not self._others and self._current is None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._collect(), name="api-events-collect")
            group.create_task(self._report(), name="api-events-report")

    async def _collect(self) -> None:
        async for event in self._watch_events():
            if event.involved_object.kind in KINDS and self._may_send(event):
                self._put(event)

    def _may_send(self, event: Event) -> bool:
        about = event.involved_object
        key = (about.kind, about.namespace, about.name, about.uid)
        limit = self._limits.setdefault(key, BurstLimit(OBJECT_PER_SECOND, OBJECT_BURST))
        self._limits.move_to_end(key)
        if len(self._limits) > OBJECTS:
            self._limits.popitem(last=False)
        return limit.take(self._clock.monotonic())

    def _put(self, event: Event) -> None:
        queue = self._warnings if event.type == WARNING else self._others
        self._news_at = self._clock.monotonic()
        if (known := queue.get(event.metadata.name)) is not None:
            known.event = event
            return
        if len(queue) >= WAITING:
            queue.popitem(last=False)
            self.dropped += 1
        queue[event.metadata.name] = _Waiting(event, self._news_at)
        self._news.set()

    async def _report(self) -> None:
        try:
            while True:
                await self._send(await self._next())
                self._current = None
        finally:
            await self._send_last()
            self._current = None

    async def _next(self) -> Event:
        """Wait until an event is due, and return it."""
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            due_at = self._due_at()
            if due_at <= now:
                return self._pop()
            await self._wait_news(due_at)

    def _due_at(self) -> float:
        """Return the monotonic time at which to send the next event; infinity if no event waits."""
        if self._warnings:
            return float("-inf")
        if not self._others:
            return float("inf")
        oldest = next(iter(self._others.values()))
        quiet_at = max(self._news_at, self._busy_at()) + QUIET_SECONDS
        return min(quiet_at, oldest.since + MOST_SECONDS)

    def _pop(self) -> Event:
        self._current = (self._warnings or self._others).popitem(last=False)[1].event
        return self._current

    async def _wait_news(self, until: float) -> None:
        cancel = self._clock.call_at(until, self._news.set) if until < float("inf") else None
        try:
            await self._news.wait()
        finally:
            if cancel is not None:
                cancel()

    async def _send_last(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while not self.is_idle and not self._client.problem:
                    event, self._current = self._current or self._pop(), None
                    with contextlib.suppress(KubeletxError):
                        await self._try(event)

    async def _send(self, event: Event) -> None:
        for _ in range(TRIES):
            try:
                await self._try(event)
            except (Unavailable, TimedOut) as error:
                now = self._clock.monotonic()
                await self._client.pause(self._backoff.next(now, at_least=least_seconds(error)))
            except KubeletxError as error:
                log.debug("Dropped an event", reason=event.reason, err=str(error))
                break
            else:
                self._backoff.reset()
                return
        self.dropped += 1

    async def _try(self, event: Event) -> None:
        key, namespace = event.metadata.name, event.metadata.namespace
        patch = {"count": event.count, "message": event.message, "lastTimestamp": event.last_timestamp}
        if key in self._sent:
            try:
                await self._client.patch(EVENTS.path(namespace, key), patch, Event, kind=Patch.MERGE)
            except NotFound:
                self._sent.pop(key, None)
            else:
                return
        fresh = replace(event, metadata=ObjectMeta(name=key, namespace=namespace))
        try:
            await self._client.create(EVENTS.path(namespace), fresh, Event)
        except AlreadyExists:  # sent by an earlier agent
            await self._client.patch(EVENTS.path(namespace, key), patch, Event, kind=Patch.MERGE)
        self._sent[key] = namespace
        while len(self._sent) > KNOWN:
            self._sent.popitem(last=False)
