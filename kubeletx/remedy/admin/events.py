"""Events for people: one for each change of a flow, about the Node and about its NodeFence, and alarms.

Events are written in the background and may be lost: a flow never waits for them. Equal events are one object with a count,
whose name depends on what happened, so that it also grows after a restart of the controller.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog

from kubeletx.api import AlreadyExists, Clock, KubeletxError
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.resources import EVENTS
from kubeletx.kube.types.event import Event, EventSource
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference

from ..decisions import Change
from ..fences import fence_name
from ..model import NodeFence, RemedySettings
from ..planner import FlowPlan

log = structlog.get_logger(__name__)

COMPONENT: Final = "kubeletx-remedy"
REPEATED: Final = "NodeRemedyRepeated"
FAILED: Final = "NodeRemedyFailed"
_NAMESPACE: Final = "default"
"""Namespace of events about objects that have none."""
_MOST_WAITING: Final = 1000
_MOST_MESSAGE: Final = 1024


class FlowEvent(NamedTuple):
    """One event. `node`: the node's name and UID."""

    node: str
    uid: str
    fence: NodeFence
    reason: str
    message: str
    is_warning: bool


def events_of(plan: FlowPlan, change: Change, now: datetime) -> Iterator[FlowEvent]:
    """Yield the events about a change that was recorded, first the change itself, then alarms. Pure."""
    fence, node = change.fence, plan.node
    reason = f"{fence.step}{fence.flow.status}".replace("-", "")

    def event(reason: str, message: str, *, is_warning: bool) -> FlowEvent:
        return FlowEvent(node.name, node.metadata.uid, fence, reason, message, is_warning)

    yield event(reason, change.message, is_warning=change.is_warning)
    if fence.flow.terminal and (plan.fence is None or not plan.fence.flow.terminal):
        yield event(FAILED, f"all remedies failed: {fence.flow.message}", is_warning=True)
    begins = plan.fence is None or (plan.fence.is_over and not fence.is_over)
    settings = plan.facts.settings
    if begins and repeats_of(fence, settings, now) >= settings.alarm_count:
        message = f"{settings.alarm_count} or more problems within {settings.alarm_period / 3600:g} h"
        yield event(REPEATED, message, is_warning=True)


def repeats_of(fence: NodeFence, settings: RemedySettings, now: datetime) -> int:
    """Return how many flows of the node have begun within the period of alarms."""
    since = now - timedelta(seconds=settings.alarm_period)
    return sum(start >= since for start in fence.starts)


class EventWriter:
    """Writes events to the API server. The caller runs `run` as a task."""

    def __init__(self, client: KubeClient, clock: Clock, instance: str) -> None:
        """`instance`: name of this controller."""
        self._client = client
        self._clock = clock
        self._instance = instance
        self._waiting: asyncio.Queue[tuple[FlowEvent, datetime]] = asyncio.Queue(_MOST_WAITING)

    def put(self, event: FlowEvent) -> None:
        """Write the event soon. Never waits; if too many wait, it is dropped."""
        try:
            self._waiting.put_nowait((event, self._clock.now()))
        except asyncio.QueueFull:
            log.debug("Dropped an event", node=event.node, reason=event.reason)

    async def run(self) -> None:
        while True:
            event, at = await self._waiting.get()
            # As the kubelet has it: the UID of a Node in events is its name, by which kubectl describe finds them.
            about_node = ObjectReference(kind="Node", name=event.node, uid=event.node, api_version="v1")
            about_fence = ObjectReference(
                kind="NodeFence",
                name=fence_name(event.node),
                uid=event.fence.metadata.uid,
                api_version="ha.k8s.io/v1",
            )
            for about in (about_node, about_fence):
                try:
                    await self._write(event, about, at)
                except KubeletxError as error:
                    log.warning("Cannot write an event", node=event.node, err=str(error))

    async def _write(self, event: FlowEvent, about: ObjectReference, at: datetime) -> None:
        message = event.message[:_MOST_MESSAGE]
        same = f"{about.kind} {event.uid} {event.reason} {event.is_warning} {message}"
        name = f"{about.name}.{hashlib.sha256(same.encode()).hexdigest()[:16]}"
        made = Event(
            metadata=ObjectMeta(name=name, namespace=_NAMESPACE),
            involved_object=about,
            reason=event.reason,
            message=message,
            type="Warning" if event.is_warning else "Normal",
            source=EventSource(component=COMPONENT),
            first_timestamp=at,
            last_timestamp=at,
            count=1,
            reporting_component=COMPONENT,
            reporting_instance=self._instance,
        )
        try:
            await self._client.create(EVENTS.path(_NAMESPACE), made, Event)
        except AlreadyExists:
            path = EVENTS.path(_NAMESPACE, name)
            known = await self._client.get(path, Event)
            stamp = f"{at:%Y-%m-%dT%H:%M:%SZ}"
            again = {"count": (known.count or 1) + 1, "lastTimestamp": stamp}
            await self._client.patch(path, again, Event, kind=Patch.MERGE)
