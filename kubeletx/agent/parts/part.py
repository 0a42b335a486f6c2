"""`Part`: one component of the agent as a value: its tables, tasks, servers, metrics and health checks.

    factory ─► Part ─► Composition.add, add, … ─► open: tables of all parts, then `load` of each in order
    Part    tables, load ─► early ─► recovered ─► tasks ─► servers ─► feeds        close, in reverse order

Each factory in this folder builds one component from the configuration and the results of earlier factories, adds its
`Part` to the `Composition`, and returns the objects that later factories need. `Assembly.run` runs the tasks and servers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

import msgspec
from sqlalchemy import MetaData

from kubeletx.api import AlreadyExists, Clock, ClusterObjects
from kubeletx.api.counting import Metric
from kubeletx.kube.types.core import PodStatus
from kubeletx.plugins.loading import Plugins
from kubeletx.pods import DesiredPod, Evacuation, ExtrasProvider, PodFacts, StatusBoard
from kubeletx.server.views import PartHealth
from kubeletx.store import Store

from ..config.tree import AgentConfig
from ..host.readings import HostReadings

Run = Callable[[], Awaitable[None]]
Close = Callable[[], Awaitable[None] | None]
HealthCheck = Callable[[], Sequence[PartHealth]]
"""Returns the health of one component of the agent. It is quick and calls nothing outside the process."""
StatusListener = Callable[[DesiredPod, PodFacts, PodStatus | None], None]
"""Called after each change of a pod's status; status None: the pod was removed."""


class ListeningServer(Protocol):
    """A server that listens on a socket from `start` to `stop`."""

    async def start(self) -> None:
        """Begin to listen and to serve."""
        ...

    async def stop(self) -> None:
        """Stop listening and close open connections."""
        ...


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A background task of the agent.

    `run`: called at start, and again some time after it raised an error; when it returns, the task is done.
    `on_failure`: called with each error; None: errors are only logged.
    """

    name: str
    run: Run
    on_failure: Callable[[Exception], None] | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One component of the agent: the tables, tasks, servers and health checks that it adds to the agent.

    Only `name` is required.
    """

    name: str
    tables: tuple[MetaData, ...] = ()
    """The component's tables in the state database."""
    load: Run | None = None
    """Called when the state database is open, in the order of the components."""
    early: tuple[Task, ...] = ()
    """Tasks that start before runtimes connect and pods are recovered."""
    tasks: tuple[Task, ...] = ()
    """Tasks that start after pods are recovered, before any server listens."""
    servers: tuple[ListeningServer, ...] = ()
    """Servers that start after the tasks. At the end they stop first, in reverse order."""
    feeds: tuple[Task, ...] = ()
    """Tasks that start after the servers listen: pod sources, and reports to a cluster."""
    close: tuple[Close, ...] = ()
    """Functions to call at the end, in reverse order, after the components added later are closed."""
    metrics: Iterable[Metric] = ()
    """What the component counts, for ``/metrics``; iterated once, when the component is added."""
    health: tuple[HealthCheck, ...] = ()
    """Health checks of the component, for ``/healthz``."""
    status_listeners: tuple[StatusListener, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of the component's pod sources; each reports to the pod manager when it has delivered all its pods."""
    objects: Mapping[str, ClusterObjects] = {}
    """Access to the API objects that pods may refer to, by name of the pods' source."""
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of further mounts, environment variables and annotations for containers, by unique names."""
    evacuation: Evacuation | None = None
    """Hook called before the containers of an ending pod are stopped."""
    recovered: Callable[[], None] | None = None
    """Called when earlier pods are recovered, before anything is planned for a pod."""


class Composition:
    """Collects the agent's components in the order of `add`. Leaving the context closes them in reverse order.

    `objects`: access to the API objects that pods refer to, by name of the pods' source. `extras`: providers of further
    mounts, environment variables and annotations for containers, by name. `evacuations`: hooks called before the
    containers of an ending pod are stopped. All three are filled by later parts, too.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.objects: dict[str, ClusterObjects] = {}
        self.extras: dict[str, ExtrasProvider] = {}
        self.evacuations: list[Evacuation] = []
        self._metrics: list[Metric] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def sources(self) -> frozenset[str]:
        return frozenset(name for part in self.parts for name in part.sources)

    def metrics(self) -> Sequence[Metric]:
        return self._metrics

    def health(self) -> tuple[PartHealth, ...]:
        """Run the health checks of all components, and return the results in the order of `add`."""
        return tuple(result for part in self.parts for check in part.health for result in check())

    def add(self, part: Part) -> None:
        """Add a component. Raises AlreadyExists if another one has a provider of extras of the same name."""
        if taken := sorted(self.extras.keys() & part.extras.keys()):
            raise AlreadyExists(
                f"part {part.name}: another part already has providers of extras named {', '.join(taken)}; rename them"
            )
        self.parts.append(part)
        self.objects.update(part.objects)
        self.extras.update(part.extras)
        if part.evacuation is not None:
            self.evacuations.append(part.evacuation)
        self._metrics.extend(part.metrics)
        for close in part.close:
            self._stack.push_async_callback(_close, close)

    async def open(self, store: Store, board: StatusBoard) -> None:
        """Subscribe the components' status listeners to `board`, open the state database, and load the components.

        The database gets the tables of all components; their `load` functions are called in the order of `add`.
        """
        for part in self.parts:
            for listener in part.status_listeners:
                board.subscribe(listener)
        await store.begin([metadata for part in self.parts for metadata in part.tables])
        for part in self.parts:
            if part.load is not None:
                await part.load()


async def _close(close: Close) -> None:
    done = close()
    if inspect.isawaitable(done):
        await done


class PartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values that every factory in `parts/` needs.

    `made`: the components so far; a factory adds its own. `host`: state of the machine at the agent's start. `store`:
    the state database, which is not open yet.
    """

    made: Composition

    config: AgentConfig
    plugins: Plugins
    clock: Clock
    host: HostReadings
    agent_id: str
    store: Store
