"""`EventTee`: copies all events of one runtime to subscribers. The pods' workers get events from `EventFilter` instead.

    with handle.subscribe() as events:
        async for event in events:
            ...

Subscribers get every event as the runtime sends it: also events that the agent's own calls cause, and events of objects
that other clients of the runtime made. `EventTee.put` never waits. A slow subscriber gets fewer events: a new event
replaces an equal one (kind and ids) that is not read yet, and if too many are not read, all of them are replaced by
one RESYNC, after which the subscriber has to list. Each subscription begins with a RESYNC, and another one follows
each loss of the runtime's stream. A runtime without events gives only the first RESYNC.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

from msgspec.structs import replace

from kubeletx.api import EventKind, RuntimeEvent

UNREAD_EVENTS = 1024
RESYNC = RuntimeEvent(kind=EventKind.RESYNC)


class EventTee:
    """Copies the events of one runtime to all subscribers; must be used on one event loop."""

    def __init__(self) -> None:
        self._subscriptions: set[EventSubscription] = set()

    def subscribe(self, limit: int = UNREAD_EVENTS) -> EventSubscription:
        """Begin a subscription, which the caller closes. `limit`: maximum number of its unread events."""
        subscription = EventSubscription(self, limit)
        self._subscriptions.add(subscription)
        return subscription

    def put(self, event: RuntimeEvent) -> None:
        """Add the event to the unread events of each subscriber; never waits."""
        for subscription in self._subscriptions:
            subscription.offer(event)

    def forget(self, subscription: EventSubscription) -> None:
        """Remove a subscription, which gets no more events; called by `EventSubscription.close`."""
        self._subscriptions.discard(subscription)


class EventSubscription:
    """Async iterator over one runtime's events for one subscriber.

    It is also a context manager, which closes the subscription.
    """

    def __init__(self, tee: EventTee, limit: int) -> None:
        self._tee = tee
        self._limit = limit
        self._unread: dict[RuntimeEvent, RuntimeEvent] = {RESYNC: RESYNC}
        self._arrived = asyncio.Event()
        self._arrived.set()
        self._is_closed = False

    def offer(self, event: RuntimeEvent) -> None:
        """Add an event to the unread events. If they exceed the limit, one RESYNC replaces all of them."""
        if event.kind is EventKind.RESYNC:
            self._unread = {RESYNC: RESYNC}  # it covers everything before it
        else:
            key = replace(event, at_ns=0)
            self._unread.pop(key, None)
            self._unread[key] = event
            if len(self._unread) > self._limit:
                self._unread = {RESYNC: RESYNC}
        self._arrived.set()

    def close(self) -> None:
        """End the iteration; idempotent."""
        self._is_closed = True
        self._tee.forget(self)
        self._arrived.set()

    def __enter__(self) -> EventSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[RuntimeEvent]:
        return self

    async def __anext__(self) -> RuntimeEvent:
        while not self._is_closed:
            if self._unread:
                return self._unread.pop(next(iter(self._unread)))
            self._arrived.clear()
            await self._arrived.wait()
        raise StopAsyncIteration
