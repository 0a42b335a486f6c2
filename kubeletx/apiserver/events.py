"""`EventReporter`: events of this node go to the API server too.

The node's own store is the truth; what goes to the API server is a copy, at most as many as can be sent without getting
in the way. An event that was counted up is patched; one that the API server forgot meanwhile (events live for an hour
there) is created anew. What cannot be sent after a few tries is dropped and counted.

Source: client-go, tools/record/event.go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

import structlog
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, KubeletxError, NotFound, Unavailable
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.backoff import Backoff
from kubeletx.kube.client.resources import EVENTS
from kubeletx.kube.core import ObjectMeta
from kubeletx.kube.event import Event

log = structlog.get_logger(__name__)

TRIES = 12
KNOWN = 4096
KINDS = frozenset({"Pod", "Node"})
"""What other objects the cluster cannot know."""


class EventReporter:
    """`run` is its one task. `dropped` counts what was never sent."""

    def __init__(
        self, client: KubeClient, watch_events: Callable[[], AsyncIterator[Event]], *, clock: Clock
    ) -> None:
        """`watch_events`: events from now on; a repetition is the same event with a higher count."""
        self._client = client
        self._watch_events = watch_events
        self._clock = clock
        self._sent: OrderedDict[str, str] = OrderedDict()
        self._backoff = Backoff(first=1.0, cap=10.0)
        self.dropped = 0

    async def run(self) -> None:
        """Report until cancelled."""
        async for event in self._watch_events():
            if event.involved_object.kind in KINDS:
                await self._send(event)

    async def _send(self, event: Event) -> None:
        for _ in range(TRIES):
            try:
                await self._try(event)
            except Unavailable:
                await self._client.pause(self._backoff.next(self._clock.monotonic()))
            except KubeletxError as error:
                log.debug("Dropped an event", reason=event.reason, err=str(error))
                break
            else:
                self._backoff.reset()
                return
        self.dropped += 1

    async def _try(self, event: Event) -> None:
        key, namespace = event.metadata.name, event.metadata.namespace
        if key in self._sent:
            patch = {
                "count": event.count,
                "message": event.message,
                "lastTimestamp": event.last_timestamp,
            }
            try:
                await self._client.patch(EVENTS.path(namespace, key), patch, Event, kind=Patch.MERGE)
                return
            except NotFound:
                self._sent.pop(key, None)
        fresh = replace(event, metadata=ObjectMeta(name=key, namespace=namespace))
        try:
            await self._client.create(EVENTS.path(namespace), fresh, Event)
        except AlreadyExists:
            await self._client.patch(
                EVENTS.path(namespace, key), {"count": event.count}, Event, kind=Patch.MERGE
            )
        self._sent[key] = namespace
        while len(self._sent) > KNOWN:
            self._sent.popitem(last=False)
