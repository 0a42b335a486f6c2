"""containerd's own gRPC services: `server_uuid` reads its identity, `ContainerdEvents` its event stream.

The event stream has the events of all clients in all namespaces, so the subscription selects the topics that affect
pods. The exit of an exec, such as a probe, is reported on the same topic as the exit of a container; these events are
dropped here.

An exit event may arrive before containerd's CRI shows the exit; the agent then reads the status again until it does.
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
from .methods import method
from .stubs import containerd_events_pb2 as ev
from .stubs import containerd_events_service_pb2 as events_pb
from .stubs import containerd_introspection_pb2 as introspection_pb
from .stubs.containerd_types_pb2 import Envelope

NAMESPACE_HEADER = "containerd-namespace"

SERVER = method(
    introspection_pb.DESCRIPTOR.services_by_name["Introspection"], Empty, introspection_pb.ServerResponse
)
SUBSCRIBE = method(events_pb.DESCRIPTOR.services_by_name["Events"], events_pb.SubscribeRequest, Envelope)


class Topic(NamedTuple):
    """Describes how to decode the events of one containerd topic.

    `message`: type of the message. `field`: its field with the container's id. `kind`: kind of the `RuntimeEvent`.
    """

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
    """Return containerd's UUID, which it stores in its root directory; empty if the server is not containerd."""
    try:
        answer = await client.call(SERVER, Empty(), timeout_seconds=DEADLINE_SECONDS)
    except Unsupported:
        # Not containerd: `find_store_id` uses the endpoint as the identity of the store.
        return ""
    return answer.uuid


class ContainerdEvents:
    """Events of the containers in one containerd namespace. Implements `SupportsEvents`."""

    def __init__(
        self, client: CriClient, known: KnownIds, *, namespace: str, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`known`: table to look up the sandbox and the pod's UID for the container id in an event.

        `namespace`: containerd namespace. `sleep`: waits a number of seconds; replaced in tests.
        """
        self._client = client
        self._known = known
        self._namespace = namespace
        self._sleep = sleep

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        request = events_pb.SubscribeRequest(filters=filters(self._namespace))
        header = ((NAMESPACE_HEADER, self._namespace),)
        stream = self._client.stream(SUBSCRIBE, request, metadata=header)
        async for envelope in with_gap(stream, self._sleep):
            event = RESYNC if envelope is None else read_event(envelope, self._known)
            if event is not None:
                yield event


def filters(namespace: str) -> list[str]:
    """Return the filters of the subscription, one for each topic. containerd sends events that match any of them."""
    return [f'topic=="{topic}",namespace=="{namespace}"' for topic in TOPICS]


def read_event(envelope: Envelope, known: KnownIds) -> RuntimeEvent | None:
    """Decode one containerd event; None if it changes nothing in a pod, such as the exit of an exec.

    An id that is not in `known` is treated as the id of a unit. An event that cannot be decoded becomes RESYNC,
    after which the agent lists everything. A deleted id is removed from `known`.
    """
    topic = TOPICS.get(envelope.topic)
    if topic is None:
        return None
    try:
        message: Message = topic.message.FromString(envelope.event.value)
    except DecodeError:  # unreadable: list everything instead
        return RESYNC
    # The exit of an exec has the id of the exec; the exit of the container has the container's id twice.
    if isinstance(message, ev.TaskExit) and message.id not in ("", message.container_id):
        return None
    some_id: str = getattr(message, topic.field)
    at_ns = envelope.timestamp.ToNanoseconds()
    # Before `forget`: the event of a deletion needs the owner that it removes from the table.
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
