"""A room of sessions with a fake clock, fake pods and an application that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from kubeletx.api import NotFound, PodUid, Unavailable
from kubeletx.api.names import SESSIONS
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
)
from kubeletx.pods import DesiredPod, PodFacts
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.instance import Instance, OutgoingStream
from kubeletx.sessions.model import OpenRequest, Session, SessionLimits, SessionState
from kubeletx.sessions.records import SESSION_TABLES, SessionRecords
from kubeletx.sessions.service import PodAccess, PodView, Sessions
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.store import Store
from kubeletx.testing.clock import FakeClock

UID = PodUid("u1")
T = TypeVar("T")


class LockedStore(Store):
    """A state database that cannot be read before `unlock`."""

    _is_locked = True

    async def read(self, work: Callable[[Any], T]) -> T:
        if self._is_locked:
            raise Unavailable("the state database is locked")
        rows = await super().read(work)
        self._was_read.set()
        return rows

    async def unlock(self, clock: FakeClock) -> None:
        """Return when the rows were read, within five seconds of the clock."""
        self._is_locked, self._was_read = False, asyncio.Event()
        await clock.run_for(5)
        async with asyncio.timeout(60):
            await self._was_read.wait()
        await clock.settle()


class Pods:
    """The node's pods: what `Sessions` asks of them is recorded."""

    def __init__(self) -> None:
        self.views: dict[PodUid, PodView] = {}
        self.power: dict[PodUid, Power | None] = {}
        self.ended: list[tuple[PodUid, str]] = []

    def add(self, uid: str = UID, *, name: str = "web", has_sessions: bool = True) -> None:
        annotations = {SESSIONS: "true"} if has_sessions else {}
        meta = ObjectMeta(name=name, namespace="default", uid=PodUid(uid), annotations=annotations)
        pod = Pod(metadata=meta, spec=PodSpec(containers=(Container(name="main", image="i"),)))
        self.views[PodUid(uid)] = PodView(pod=pod, is_ending=False)

    def find(self, pod_id: str) -> PodView | None:
        views = self.views.values()
        return next((one for one in views if f"{one.pod.namespace}/{one.pod.name}" == pod_id), None)

    def ask_power(self, uid: PodUid, power: Power | None) -> None:
        if uid not in self.views:
            raise NotFound(f"pod {uid} is not on this node")
        self.power[uid] = power

    def end(self, uid: PodUid, reason: str, _message: str) -> None:
        self.ended.append((uid, reason))

    def access(self) -> PodAccess:
        return PodAccess(find=self.find, get=self.views.get, ask_power=self.ask_power, end=self.end)


def a_report(status: pb.SessionStatus, *, session: str = "default/s1", pod: str = "") -> pb.SessionMessage:
    """The message by which an application reports the state of a session."""
    identifier = pb.SessionIdentifier(podId=pod, identifier=session)
    return pb.SessionMessage(sessionIdentifier=identifier, messageType=pb.SESSION_STATE, sessionStatus=status)


class Application:
    """The application in a pod: it reads its stream and reports states."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.stream: OutgoingStream = instance.attach()

    async def read(self) -> list[pb.SessionMessage]:
        """Take all messages that wait."""
        messages = []
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0):
                    messages.append(await anext(self.stream))
        return messages

    async def kinds(self) -> list[str]:
        """Names of the types of all messages that wait."""
        return [pb.MessageType.Name(message.messageType) for message in await self.read()]

    def report(
        self,
        state: pb.SessionState,
        *clients: str,
        session: str = "default/s1",
        pod: str = "",
        identifier: str = "",
    ) -> None:
        status = pb.SessionStatus(
            sessionState=state, clientSession=[pb.ClientSession(clientIdentifier=name) for name in clients]
        )
        message = a_report(status, session=session, pod=pod)
        message.messageIdentifier = identifier
        self.instance.received(message)


class Room:
    """The room under test. `changes`: sessions as listeners saw them."""

    def __init__(
        self, store: Store, clock: FakeClock, pods: Pods, limits: SessionLimits | None = None
    ) -> None:
        self.clock = clock
        self.pods = pods
        self.store = store
        self.records = SessionRecords(store, clock)
        self.sessions = Sessions(pods=pods.access(), records=self.records, clock=clock, limits=limits)
        self.changes: list[Session] = []
        self.sessions.subscribe(self.changes.append)

    @asynccontextmanager
    async def task(self) -> AsyncIterator[None]:
        """Run the room's task."""
        task = asyncio.create_task(self.sessions.run(), name="sessions")
        await self.settle()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self) -> None:
        await self.clock.settle()

    def states(self, session_id: str = "default/s1") -> list[str]:
        """States of a session as listeners saw them, without repetitions."""
        states: list[str] = []
        for change in self.changes:
            if change.id == session_id and (not states or states[-1] != change.state):
                states.append(change.state.value)
        return states

    def session(self, session_id: str = "default/s1") -> Session:
        found = self.sessions.find(session_id)
        assert found is not None
        return found

    async def open(self, session_id: str = "default/s1", **fields: Any) -> Session:
        request = OpenRequest(id=session_id, **{"pod_id": "default/web", **fields})
        session = await self.sessions.open(request)
        await self.settle()
        return session

    def connect(self, uid: PodUid = UID) -> Application:
        """Connect the application of a pod."""
        return Application(self.sessions.ensure_instance(self.pods.views[uid].pod))

    async def connect_and_read(self) -> list[pb.SessionMessage]:
        """Connect the application again, and return what it gets."""
        application = self.connect()
        await self.settle()
        return await application.read()

    async def opened(self, *clients: str, **fields: Any) -> Application:
        """Open a session whose instance answers at once, with these clients."""
        application = self.connect()
        await self.open(**fields)
        application.report(pb.STATE_OPEN, *clients)
        await self.settle()
        assert self.session().state is (SessionState.LIVE if clients else SessionState.READY)
        await application.read()
        return application

    async def unlock(self) -> None:
        """Make the database readable, see `LockedStore`."""
        assert isinstance(self.store, LockedStore)
        await self.store.unlock(self.clock)

    def pod_status(
        self, phase: str = "Running", containers: tuple[str, ...] = ("c1",), before: tuple[str, ...] = ()
    ) -> None:
        """Publish a status of the pod; `containers`: IDs of the running ones, `before`: those of its status before."""
        self._publish(_status(phase, containers), facts=PodFacts(previous_status=_status("Running", before)))

    def pod_gone(self) -> None:
        desired = self.pods.views.pop(UID)
        self._publish(None, desired)

    def _publish(
        self, status: PodStatus | None, view: PodView | None = None, facts: PodFacts | None = None
    ) -> None:
        pod = (view or self.pods.views[UID]).pod
        desired = DesiredPod(uid=UID, pod=pod, source="file", spec_hash="")
        self.sessions.pod_changed(desired, facts or PodFacts(), status)


def _status(phase: str, containers: tuple[str, ...]) -> PodStatus:
    statuses = tuple(
        ContainerStatus(
            name="main",
            image="i",
            image_id="",
            ready=True,
            restart_count=0,
            container_id=name,
            state=ContainerState(running=ContainerStateRunning()),
        )
        for name in containers
    )
    return PodStatus(phase=phase, container_statuses=statuses)


@asynccontextmanager
async def running_room(
    path: Path,
    *,
    clock: FakeClock | None = None,
    pods: Pods | None = None,
    limits: SessionLimits | None = None,
    starts: bool = True,
    store_type: type[Store] = Store,
) -> AsyncIterator[Room]:
    """Run a room over the database at `path`, as an agent does; at the end it stops, and sessions stay stored.

    `starts`: load the room and run its task.
    """
    if pods is None:
        pods = Pods()
        pods.add()
    store = await store_type.open(path, [SESSION_TABLES])
    room = Room(store, clock or FakeClock(), pods, limits)
    try:
        if starts:
            await room.sessions.load()
            room.sessions.ask_again()
            async with room.task():
                yield room
        else:
            yield room
        await room.sessions.stop()
    finally:
        await store.close()
