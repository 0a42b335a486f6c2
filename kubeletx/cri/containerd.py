"""containerd's own services besides its CRI: identity and events.

Its event stream has every task of every client, in all namespaces and without end of file on overload, so only the
topics that affect pods are requested. Exits of execs (probes!) come on the same topic as those of containers and are
dropped here.

An exit event can come before containerd's CRI shows the exit: the host reads the status again until both agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from kubeletx.api import EventKind, RuntimeEvent, UnitId, Unsupported

from .client import DEADLINE_SECONDS, CriClient
from .events import RESYNC, Sleep, with_gap
from .ids import KnownIds
from .methods import method, streaming
from .stubs import containerd_events_pb2 as ev
from .stubs import containerd_events_service_pb2 as events_pb
from .stubs import containerd_introspection_pb2 as introspection_pb
from .stubs.containerd_types_pb2 import Envelope

NAMESPACE_HEADER = "containerd-namespace"

SERVER = method(
    "containerd.services.introspection.v1.Introspection", "Server", Empty, introspection_pb.ServerResponse
)
SUBSCRIBE = streaming(
    "containerd.services.events.v1.Events", "Subscribe", events_pb.SubscribeRequest, Envelope
)


class Topic(NamedTuple):
    """Type of a topic's messages, the field with the container's id, and the kind of event they become."""

    message: type[Any]
    field: str
    kind: EventKind


TOPICS: dict[str, Topic] = {
    "/tasks/start": Topic(ev.TaskStart, "container_id", EventKind.STARTED),
    "/tasks/exit": Topic(ev.TaskExit, "container_id", EventKind.STOPPED),
    "/tasks/oom": Topic(ev.TaskOOM, "container_id", EventKind.OOM),
    "/tasks/paused": Topic(ev.TaskPaused, "container_id", EventKind.CHANGED),
    "/tasks/resumed": Topic(ev.TaskResumed, "container_id", EventKind.CHANGED),
    "/containers/create": Topic(ev.ContainerCreate, "id", EventKind.CREATED),
    "/containers/delete": Topic(ev.ContainerDelete, "id", EventKind.DELETED),
}


async def server_uuid(client: CriClient) -> str:
    """Return the UUID that containerd keeps in its root directory; empty if the server is not containerd."""
    try:
        answer = await client.call(SERVER, Empty(), timeout_seconds=DEADLINE_SECONDS)
    except Unsupported:
        return ""
    return answer.uuid


class ContainerdEvents:
    """Events of the containers in one containerd namespace. Implements `SupportsEvents`."""

    def __init__(
        self, client: CriClient, known: KnownIds, *, namespace: str, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`known`: finds the sandbox, the unit and the pod's UID for the id in an event, if that id was seen before."""
        self._client = client
        self._known = known
        self._namespace = namespace
        self._sleep = sleep

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield events from now on. Raises Unavailable when the connection breaks."""
        request = events_pb.SubscribeRequest(filters=filters(self._namespace))
        header = ((NAMESPACE_HEADER, self._namespace),)
        stream = self._client.stream(SUBSCRIBE, request, metadata=header)
        async for envelope in with_gap(stream, self._sleep):
            event = RESYNC if envelope is None else read_event(envelope, self._known)
            if event is not None:
                yield event


def filters(namespace: str) -> list[str]:
    """Return the filters of the subscription; containerd sends events that match any of them."""
    return [f'topic=="{topic}",namespace=="{namespace}"' for topic in TOPICS]


def read_event(envelope: Envelope, known: KnownIds) -> RuntimeEvent | None:
    """Decode an event; None if it changes nothing in a pod, such as the exit of an exec.

    An id that `known` does not have is treated as a unit's. An event that cannot be decoded becomes RESYNC.
    """
    topic = TOPICS.get(envelope.topic)
    if topic is None:
        return None
    try:
        message: Message = topic.message.FromString(envelope.event.value)
    except DecodeError:  # unreadable: list everything instead
        return RESYNC
    if isinstance(message, ev.TaskExit) and message.id not in ("", message.container_id):
        return None
    some_id: str = getattr(message, topic.field)
    at_ns = envelope.timestamp.ToNanoseconds()
    owner = known.find(some_id)
    if topic.kind is EventKind.DELETED:
        known.forget(some_id)
    if owner is None:
        return RuntimeEvent(kind=topic.kind, unit_id=UnitId(some_id), at_ns=at_ns)
    return RuntimeEvent(
        kind=topic.kind,
        uid=owner.uid or None,
        sandbox_id=owner.sandbox_id,
        unit_id=owner.unit_id,
        at_ns=at_ns,
    )
