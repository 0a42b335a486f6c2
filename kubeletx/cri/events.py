"""Reads events with CRI's call GetContainerEvents, which not all servers have.

A client cannot see when the server has subscribed the stream, and misses earlier events. So a RESYNC event is yielded
`SETTLE_SECONDS` after the start: the agent then lists everything, and finds the changes that the stream has missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from kubeletx.api import EventKind, PodUid, RuntimeEvent, SandboxId, UnitId, Unsupported

from . import methods
from .client import DEADLINE_SECONDS, CriClient
from .stubs import runtime_v1_pb2 as pb

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[None]]

SETTLE_SECONDS = 1.0
"""Seconds until the RESYNC: far longer than a subscription takes, and shorter than the interval of relists."""

PROBE_SECONDS = 0.1

RESYNC = RuntimeEvent(kind=EventKind.RESYNC)

_KINDS = {
    pb.CONTAINER_CREATED_EVENT: EventKind.CREATED,
    pb.CONTAINER_STARTED_EVENT: EventKind.STARTED,
    pb.CONTAINER_STOPPED_EVENT: EventKind.STOPPED,
    pb.CONTAINER_DELETED_EVENT: EventKind.DELETED,
}


class CriEvents:
    """Events from CRI's call GetContainerEvents. Implements `SupportsEvents`."""

    def __init__(self, client: CriClient, *, sleep: Sleep = asyncio.sleep) -> None:
        self._client = client
        self._sleep = sleep

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        answers = self._client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
        async for answer in with_gap(answers, self._sleep):
            yield RESYNC if answer is None else event_from_cri(answer)


def event_from_cri(answer: pb.ContainerEventResponse) -> RuntimeEvent:
    """Convert one CRI event. `unit_id` of the result is None for an event of the sandbox's pause container."""
    sandbox = answer.pod_sandbox_status
    is_sandbox = answer.container_id == sandbox.id
    return RuntimeEvent(
        kind=_KINDS.get(answer.container_event_type, EventKind.CHANGED),
        uid=PodUid(sandbox.metadata.uid) if sandbox.metadata.uid else None,
        sandbox_id=SandboxId(sandbox.id) if sandbox.id else None,
        unit_id=None if is_sandbox else UnitId(answer.container_id),
        at_ns=answer.created_at,
    )


async def with_gap(items: AsyncIterator[T], sleep: Sleep) -> AsyncIterator[T | None]:
    """Yield the items of an event stream and, `SETTLE_SECONDS` after the start, one None.

    By then the server has subscribed the stream, so what is listed after the None includes all earlier changes.
    `sleep`: waits a number of seconds; replaced in tests.
    """
    settled: asyncio.Future[Any] = asyncio.create_task(_wait(sleep), name="events-settle")
    following: asyncio.Future[Any] = asyncio.create_task(_next(items), name="events-next")
    try:
        while not settled.done():
            await asyncio.wait((settled, following), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                try:
                    item: T = following.result()
                except StopAsyncIteration:
                    return
                yield item
                following = asyncio.create_task(_next(items), name="events-next")
        yield None
        try:
            yield await following
        except StopAsyncIteration:
            return
        async for item in items:  # without a task for each item, of which a busy node has many
            yield item
    finally:
        # Both tasks are awaited below: an unawaited `anext` would leave the generator running and unclosable.
        settled.cancel()
        following.cancel()
        await asyncio.gather(settled, following, return_exceptions=True)
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


async def knows_events(client: CriClient) -> bool:
    """Return True if the server has the call GetContainerEvents.

    To find out, the stream is opened and the call Version is made on the same connection. A server without
    GetContainerEvents fails the stream before it answers Version, or at most `PROBE_SECONDS` later. A server that
    has it sends nothing until there is an event.
    """
    stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
    probe = asyncio.create_task(_next(stream), name="events-probe")
    try:
        await client.call(methods.VERSION, pb.VersionRequest(), timeout_seconds=DEADLINE_SECONDS)
        done, _ = await asyncio.wait({probe}, timeout=PROBE_SECONDS)
        # Any other error of the stream is an outage, not a missing call: the stream is tried again later.
        return not done or not isinstance(probe.exception(), Unsupported)
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _wait(sleep: Sleep) -> None:
    await sleep(SETTLE_SECONDS)
