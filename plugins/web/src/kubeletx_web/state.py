"""`NodeState`: what the page knows about the node, and `Feed`: keeps it up to date while a browser watches.

    viewers 0 ── first ──► tasks: a watch each of pods, node, runtimes, events, volumes; everything else at intervals
            ◄── last + LINGER_SECONDS ── all connections to the agent are closed, the state is dropped

The feed begins a watch that breaks again; meanwhile `NodeState.problem` says that the agent does not answer, and the last
known values stay. What is no Kubernetes object stays the JSON of the agent (docs/reference.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from kubeletx.api import KubeletxError, NotFound
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node

from .agent import Agent, Line, decoded
from .values import field, listed, samples

T = TypeVar("T")
EVENTS: Final = 1000
RETRY_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 20.0
"""Time for which the state is kept without a viewer: a page that is loaded again needs it."""
FIRST_SECONDS: Final = 0.03
"""Longest time for which the first page waits for its sections; later ones are added when they are answered."""
SLOW_SECONDS: Final = 10.0
"""Interval at which everything is read that cannot be watched."""
PANELS: Final = "/v1/panels"
USAGE: Final = "/v1/usage/history"
RUNTIMES: Final = "/v1/runtimes"
POLLED: Final = (
    *("/version", USAGE, RUNTIMES, PANELS),
    *("/v1/edge", "/v1/node/cluster", "/v1/sessions", "/v1/fornaxcore", "/v1/images", "/v1/plugins"),
)
"""Paths that are read at intervals. The contents of panels are read, too."""


class Silence(NamedTuple):
    """A question that the agent does not answer: since when, in UTC, and why. Its last answer is kept."""

    since: datetime
    problem: str


class _Items(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


class NodeState:
    """Everything that the page knows about the node.

    `problem`: why the agent does not answer; empty while it does. `pods` by UID. `usage`: by UID (empty: the machine),
    the last samples, None where nothing was measured, taken at `times`. `others`: answers by path of `POLLED` and of
    panels; an absent one was never answered, or its room is off. `silences`: questions among them that the agent does not
    answer now. `unreadable`: problems of objects that are left out, by path.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.node = Node()
        self.pods: dict[str, Pod] = {}
        self.runtimes: Sequence[Mapping[str, Any]] = ()
        self.runtimes_before: Mapping[str, Mapping[str, Any]] = {}
        """The runtimes by name as they were at the last interval, to compute rates of calls."""
        self.events: dict[str, Event] = {}
        self.volumes: Sequence[Mapping[str, Any]] = ()
        self.times: tuple[datetime, ...] = ()
        self.usage: Mapping[str, tuple[Sequence[int | None], Sequence[int | None]]] = {}
        self.usage_revision = 0
        self.others: dict[str, Any] = {}
        self.silences: dict[str, Silence] = {}
        self.unreadable: dict[str, str] = {}
        self.pages: dict[str, Any] = {}
        """The live pages of this state by path; they end with it."""

    @property
    def version(self) -> Mapping[str, Any]:
        """Version and start of the agent."""
        version: Mapping[str, Any] = self.others.get("/version", {})
        return version

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the newest pod of this name; None if there is none."""
        pods = reversed(self.pods.values())
        return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def usage_of(self, uid: str) -> tuple[Sequence[int | None], Sequence[int | None]]:
        """Return the samples of CPU, in millicores, and memory, in bytes, of a pod, or of the machine (empty)."""
        return self.usage.get(uid, ((), ()))


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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unread: set[str] = set()
        """Paths of `NodeState.others` that were not read once."""
        self._changed = asyncio.Condition()
        self._ending: asyncio.TimerHandle | None = None
        self.revision = 0
        """Grows with every change of the state."""

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[NodeState]:
        """Keep the state up to date within this context. Entering waits for the first answers of the agent.

        Raises KubeletxError if the agent does not answer.
        """
        self._viewers += 1
        if self._ending is not None:
            self._ending.cancel()
        try:
            if not self._tasks:
                self._tasks["begin"] = asyncio.create_task(self._begin(), name="feed begin")
            await asyncio.shield(self._tasks["begin"])  # all viewers wait for it; one may go
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

    async def settle(self, *paths: str) -> None:
        """Wait until these paths, all of `POLLED` and panels if none is named, were answered or have failed once."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._unread.intersection(paths or self._unread))

    async def close(self) -> None:
        """End all tasks."""
        tasks = tuple(self._tasks.values())
        self._end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        for task in self._tasks.values():
            task.cancel()
        self.state.pages.clear()  # they know the state: a cycle
        self._tasks, self._unread, self.state = {}, set(), NodeState()

    async def _begin(self) -> None:
        """Read what the first page shows, and begin the watches, which repeat it."""
        jobs: Mapping[str, Callable[[], Awaitable[None]]] = {
            "/v1/pods": lambda: self._watch("/v1/pods", self._pod, self._read_pods),
            "/v1/node": lambda: self._watch("/v1/node", self._node),
            "watch of runtimes": lambda: self._watch(RUNTIMES, self._runtimes),
            "/v1/events": lambda: self._watch("/v1/events", self._event),
            "/v1/volumes": lambda: self._watch("/v1/volumes", self._volumes),
        }
        self._poll(POLLED)
        try:
            await asyncio.gather(self._read_pods(), self._read_first())
            await self.settle(RUNTIMES)
        except KubeletxError:
            self._end()
            raise
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self.settle()
        for name, job in jobs.items():
            self._tasks[name] = asyncio.create_task(self._forever(job), name=f"feed {name}")

    async def _read_pods(self) -> None:
        listed = await self._agent.get("/v1/pods", _Items)
        pods = [self._object(pod, Pod, "/v1/pods") for pod in listed.items]
        self.state.pods = {pod.uid: pod for pod in pods if pod is not None}

    async def _read_first(self) -> None:
        agent = self._agent
        node, events, volumes = await asyncio.gather(
            agent.read("/v1/node"), agent.get("/v1/events", _Items), agent.get("/v1/volumes", dict)
        )
        self._node(Line("", msgspec.Raw(node)))
        for event in events.items[-EVENTS:]:
            self._event(Line("", event))
        self.state.volumes = listed(volumes)

    async def _forever(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await job()
                problem = "the agent ended a watch"
            except KubeletxError as error:
                problem = str(error)
            if not self.state.problem:
                self.state.problem = problem
                await self._notify()
            await asyncio.sleep(RETRY_SECONDS)

    async def _watch(
        self, path: str, take: Callable[[Line], None], begun: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Take each line of a watch. `begun`: reads again what may have changed while nothing watched."""
        async with aclosing(self._agent.watch(path)) as lines:
            async for line in lines:
                if line is None:
                    if begun is not None:
                        await begun()
                    self.state.problem = ""
                elif line.type == "ERROR":
                    return
                else:
                    take(line)
                await self._notify()

    async def _notify(self) -> None:
        self.revision += 1
        async with self._changed:
            self._changed.notify_all()

    # --- rooms ---

    def _poll(self, paths: Iterable[str]) -> None:
        """Begin to read these paths at intervals, each by a task, so that a slow answer delays no other."""
        for path in paths:
            if path not in self._tasks:
                self._unread.add(path)
                self._tasks[path] = asyncio.create_task(self._read_forever(path), name=f"feed {path}")

    async def _read_forever(self, path: str) -> None:
        while True:
            await self._read(path)
            await asyncio.sleep(self._slow_seconds)

    async def _read(self, path: str) -> None:
        state, asked_at = self.state, datetime.now(UTC)
        before = state.others.get(path), state.silences.get(path)
        answer, silence = before
        try:
            answer, silence = await self._agent.get(path, dict), None
            self._apply(path, answer, before[0])
        except NotFound:  # the room is off
            answer, silence = None, None
        except (KubeletxError, ArithmeticError, TypeError, ValueError) as error:
            silence = Silence(silence.since if silence is not None else asked_at, str(error))
        _put(state.others, path, answer)
        _put(state.silences, path, silence)
        if path in self._unread or before != (answer, silence):
            self._unread.discard(path)
            await self._notify()

    def _apply(self, path: str, answer: object, before: object) -> None:
        state = self.state
        if path == PANELS:
            self._poll(panel_path(field(panel, "name", "")) for panel in listed(answer))
        elif path == RUNTIMES:
            state.runtimes = listed(answer)
            state.runtimes_before = {field(each, "name", ""): each for each in listed(before)}
        elif path == USAGE:
            times: list[str] = field(answer, "times", [])
            state.times = tuple(datetime.fromisoformat(time).astimezone(UTC) for time in times)
            state.usage = {
                field(series, "uid", ""): (samples(series, "cpu"), samples(series, "memory"))
                for series in listed(answer, "series")
            }
            state.usage_revision += 1

    # --- lines of watches ---

    def _object(self, value: msgspec.Raw, type_: type[T], path: str) -> T | None:
        """Return an object; None if it is not readable, which the page says."""
        try:
            return decoded(value, type_, path)
        except KubeletxError as error:
            self.state.unreadable[path] = str(error)
            return None

    def _pod(self, line: Line) -> None:
        pod = self._object(line.object, Pod, "/v1/pods")
        if pod is None:
            return
        if line.type == "DELETED":
            self.state.pods.pop(pod.uid, None)
        else:
            self.state.pods[pod.uid] = pod

    def _node(self, line: Line) -> None:
        self.state.node = self._object(line.object, Node, "/v1/node") or self.state.node

    def _runtimes(self, line: Line) -> None:
        self.state.runtimes = decoded(line.object, list[dict[str, Any]], RUNTIMES)

    def _volumes(self, line: Line) -> None:
        self.state.volumes = decoded(line.object, list[dict[str, Any]], "/v1/volumes")

    def _event(self, line: Line) -> None:
        event, events = self._object(line.object, Event, "/v1/events"), self.state.events
        if event is None:
            return
        key = f"{event.metadata.namespace}/{event.metadata.name}"
        events.pop(key, None)  # the newest stands last
        events[key] = event
        while len(events) > EVENTS:
            del events[next(iter(events))]


def _put(values: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def panel_path(name: str) -> str:
    """Return the URL path of a panel's content."""
    return f"{PANELS}/{quote(name, safe='')}"
