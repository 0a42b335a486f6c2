"""`NodeState`: what the page knows about the node, and `Feed`: keeps it up to date while a browser watches.

    viewers 0 ── first ──► tasks: one watch each of pods, node, runtimes, events, volumes; usage at intervals
            ◄── last + LINGER_SECONDS ── all connections to the agent are closed, the state is dropped

The feed ends a watch that breaks and begins it again; meanwhile `NodeState.problem` says that the agent does not answer,
and the last known values stay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubeletx.api import KubeletxError, NotFound
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node

from .agent import Agent, Line
from .values import Items, Runtime, Series, UsageSamples, Version, Volume, field, listed

SAMPLES: Final = 90
EVENTS: Final = 1000
RETRY_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 20.0
"""Time for which the state is kept without a viewer: a page that is loaded again needs it."""
FIRST_SECONDS: Final = 0.03
"""Longest time for which the first page waits for its sections; later ones are added when they are answered."""
SLOW_SECONDS: Final = 10.0
"""Interval at which everything is read that cannot be watched."""


ROOMS: Final = (
    "/v1/edge",
    "/v1/node/cluster",
    "/v1/sessions",
    "/v1/fornaxcore",
    "/v1/images",
    "/v1/plugins",
    "/v1/panels",
)
"""Paths of the answers that are read at intervals. The contents of panels are read, too."""


class Silence(msgspec.Struct, frozen=True):
    """A question that the agent does not answer: since when, in UTC, and why. Its last answer is kept."""

    since: datetime
    problem: str


def panel_path(name: str) -> str:
    """Return the URL path of a panel's content."""
    return f"/v1/panels/{quote(name, safe='')}"


async def _nothing() -> None:
    """Do nothing when a watch has begun."""


class Usage:
    """Usage of one pod or of the machine: the last samples, oldest first, None where nothing was measured."""

    def __init__(self, samples: int) -> None:
        """`samples`: number of earlier samples, in which this pod was not measured."""
        self.cpu: deque[int | None] = deque([None] * samples, maxlen=SAMPLES)
        self.memory: deque[int | None] = deque([None] * samples, maxlen=SAMPLES)


class NodeState:
    """Everything that the page knows about the node. `revision` grows with every change; `usage_revision` with every sample of usage.

    `problem`: why the agent does not answer; empty while it does. `pods` by UID, `usage` by UID (empty: the machine).
    `others`: answers that are read at intervals, by path, as plain JSON; an absent one was never answered, or its room is off. `silences`: questions among them that the agent does not answer now.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.version = Version()
        self.node = Node()
        self.pods: dict[str, Pod] = {}
        self.runtimes: tuple[Runtime, ...] = ()
        self.runtimes_before: dict[str, Runtime] = {}
        """The runtimes as they were at the last interval, to compute rates of calls."""
        self.events: dict[str, Event] = {}
        self.volumes: tuple[Volume, ...] = ()
        self.times: deque[datetime] = deque(maxlen=SAMPLES)
        self.usage: dict[str, Usage] = {}
        self.usage_next = 0
        self.usage_revision = 0
        self.others: dict[str, Any] = {}
        self.silences: dict[str, Silence] = {}

    def add_usage(self, samples: UsageSamples) -> None:
        """Append samples that the agent has taken since the last call."""
        if samples.next < self.usage_next:  # the agent has begun a new ring
            self.times.clear()
            self.usage.clear()
        self.usage_next = samples.next
        if not samples.times:
            return
        before = len(self.times)
        self.times.extend(samples.times)
        missing = (None,) * len(samples.times)
        given = {series.uid: series for series in samples.series}
        for uid in given.keys() - self.usage.keys():
            self.usage[uid] = Usage(before)
        for uid, usage in tuple(self.usage.items()):
            series = given.get(uid, Series(cpu=missing, memory=missing))
            usage.cpu.extend(series.cpu)
            usage.memory.extend(series.memory)
            if uid not in given and uid not in self.pods:
                del self.usage[uid]
        self.usage_revision += 1


class Feed:
    """Keeps a `NodeState` up to date while at least one viewer is in `viewing`."""

    def __init__(
        self, agent: Agent, *, linger_seconds: float = LINGER_SECONDS, slow_seconds: float = SLOW_SECONDS
    ) -> None:
        """`linger_seconds`: see `LINGER_SECONDS`. `slow_seconds`: see `SLOW_SECONDS`."""
        self.state = NodeState()
        self._agent = agent
        self._linger_seconds = linger_seconds
        self._slow_seconds = slow_seconds
        self._viewers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: dict[str, asyncio.Task[None]] = {}
        """Questions of `ROOMS` that are not answered yet, by path."""
        self._beginning = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._ending: asyncio.TimerHandle | None = None
        self.revision = 0

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[NodeState]:
        """Keep the state up to date within this context. Entering waits for the first answers of the agent.

        Raises KubeletxError if the agent does not answer.
        """
        self._viewers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        try:
            async with self._beginning:
                if not self._tasks:
                    await self._begin()
            yield self.state
        finally:
            self._viewers -= 1
            if self._viewers == 0:
                self._ending = asyncio.get_running_loop().call_later(self._linger_seconds, self._end)

    async def wait_change(self, revision: int) -> int:
        """Return the revision of the state as soon as it differs from `revision`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.revision != revision)
            return self.revision

    async def settle(self) -> None:
        """Wait until every question of `ROOMS` and about panels was answered or has failed once."""
        state, reading = self.state, self._reading
        while first := [
            reading[path] for path in reading if path not in state.others.keys() | state.silences
        ]:
            await asyncio.wait(first)

    async def close(self) -> None:
        """End all tasks."""
        tasks = [*self._tasks, *self._reading.values()]
        self._end()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        for task in (*self._tasks, *self._reading.values()):
            task.cancel()
        self._tasks, self._reading = [], {}
        self.state = NodeState()

    async def _begin(self) -> None:
        state = self.state
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            "pods": lambda: self._watch("/v1/pods", self._pod, self._drop_gone_pods),
            "node": lambda: self._watch("/v1/node", self._node),
            "runtimes": lambda: self._watch("/v1/runtimes", self._runtimes),
            "events": lambda: self._watch("/v1/events", self._event),
            "volumes": lambda: self._watch("/v1/volumes", self._volumes),
            "usage": self._slowly,
            "rooms": self._read_rooms,
        }
        state.version = await self._agent.get("/version", Version)
        self._ask(ROOMS)
        first = tuple(self._reading.values())
        await self._first()
        await asyncio.wait(first, timeout=FIRST_SECONDS)
        self._tasks = [
            asyncio.create_task(self._forever(job), name=f"feed {name}") for name, job in jobs.items()
        ]

    async def _first(self) -> None:
        """Read what the first page shows; the watches repeat it."""
        state, agent = self.state, self._agent
        pods, node, runtimes, events, volumes = await asyncio.gather(
            agent.get("/v1/pods", Items[Pod]),
            agent.get("/v1/node", Node),
            agent.get("/v1/runtimes", Items[Runtime]),
            agent.get("/v1/events", Items[Event]),
            agent.get("/v1/volumes", Items[Volume]),
        )
        state.pods = {pod.uid: pod for pod in pods.items}
        state.node, state.runtimes, state.volumes = node, runtimes.items, volumes.items
        state.runtimes_before = {runtime.name: runtime for runtime in runtimes.items}
        state.events = {_key(event): event for event in events.items[-EVENTS:]}
        state.add_usage(await agent.get("/v1/usage/history", UsageSamples))

    async def _forever(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await job()
                problem = "the agent ended a watch"
            except (KubeletxError, msgspec.DecodeError) as error:
                problem = str(error)
            if not self.state.problem:
                self.state.problem = problem
                await self._notify()
            await asyncio.sleep(RETRY_SECONDS)

    async def _watch(
        self, path: str, take: Callable[[Line], None], begun: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        async for line in self._agent.watch(path, begun):
            if line.type == "ERROR":
                return
            take(line)
            self.state.problem = ""
            await self._notify()

    async def _drop_gone_pods(self) -> None:
        """Drop the pods that were deleted while nothing watched."""
        there = {pod.uid for pod in (await self._agent.get("/v1/pods", Items[Pod])).items}
        for uid in self.state.pods.keys() - there:
            del self.state.pods[uid]

    async def _slowly(self) -> None:
        state, agent = self.state, self._agent
        while True:
            after = {"after": str(state.usage_next)}
            state.add_usage(await agent.get("/v1/usage/history", UsageSamples, after))
            state.version = await agent.get("/version", Version)
            before = {runtime.name: runtime for runtime in state.runtimes}
            state.runtimes = (await agent.get("/v1/runtimes", Items[Runtime])).items
            state.runtimes_before = before
            state.problem = ""
            await self._notify()
            await asyncio.sleep(self._slow_seconds)

    # --- rooms ---

    async def _read_rooms(self) -> None:
        while True:
            self._ask((*ROOMS, *_panel_paths(self.state)))
            await asyncio.sleep(self._slow_seconds)

    def _ask(self, paths: Iterable[str]) -> None:
        """Begin to read these paths in parallel, so that a slow answer delays no other. Paths in `_reading` are left out."""
        reading = self._reading
        for path in paths:
            if path not in reading:
                task = reading[path] = asyncio.create_task(self._read(path), name=f"feed {path}")
                task.add_done_callback(lambda _, path=path: reading.pop(path, None))  # type: ignore[misc] # its own path

    async def _read(self, path: str) -> None:
        state, asked_at = self.state, datetime.now(UTC)
        before = state.others.get(path), state.silences.get(path)
        try:
            state.others[path] = await self._agent.get(path, object)
            state.silences.pop(path, None)
        except NotFound:  # the room is off
            state.others.pop(path, None)
            state.silences.pop(path, None)
        except KubeletxError as error:
            since = before[1].since if before[1] is not None else asked_at
            state.silences[path] = Silence(since, str(error))
        if path == "/v1/panels":
            self._ask(
                new for new in _panel_paths(state) if new not in state.others and new not in state.silences
            )
        if before != (state.others.get(path), state.silences.get(path)):
            await self._notify()

    async def _notify(self) -> None:
        self.revision += 1
        async with self._changed:
            self._changed.notify_all()

    # --- lines of watches ---

    def _pod(self, line: Line) -> None:
        pod = msgspec.json.decode(line.object, type=Pod)
        if line.type == "DELETED":
            self.state.pods.pop(pod.uid, None)
        else:
            self.state.pods[pod.uid] = pod

    def _node(self, line: Line) -> None:
        self.state.node = msgspec.json.decode(line.object, type=Node)

    def _runtimes(self, line: Line) -> None:
        self.state.runtimes = msgspec.json.decode(line.object, type=tuple[Runtime, ...])

    def _volumes(self, line: Line) -> None:
        self.state.volumes = msgspec.json.decode(line.object, type=tuple[Volume, ...])

    def _event(self, line: Line) -> None:
        event, events = msgspec.json.decode(line.object, type=Event), self.state.events
        events.pop(_key(event), None)  # the newest stands last
        events[_key(event)] = event
        while len(events) > EVENTS:
            del events[next(iter(events))]


def _panel_paths(state: NodeState) -> Sequence[str]:
    return [panel_path(field(panel, "name", "")) for panel in listed(state.others.get("/v1/panels"))]


def _key(event: Event) -> str:
    return f"{event.metadata.namespace}/{event.metadata.name}"
