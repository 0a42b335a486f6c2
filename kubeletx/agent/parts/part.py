"""`Part`: one component of the agent as a value: its tables, tasks, servers and health checks.

    factory ─► typed result (registry, manager, …) with its Part ─► Composition
    Part    tables, load ─► tasks ─► servers ─► feeds        close

Each factory in this folder builds one component from the configuration and the results of earlier factories.
`Composition` (`kubeletx.agent.composition`) opens the state database with the tables of all components, loads them, and
closes them at the end. `Assembly.run` runs their tasks and servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from sqlalchemy import MetaData

from kubeletx.api import Clock, ClusterObjects
from kubeletx.kube.types.core import PodStatus
from kubeletx.plugins.loading import Plugins
from kubeletx.pods import DesiredPod, ExtrasProvider, PodFacts
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
    tasks: tuple[Task, ...] = ()
    """Tasks that start after pods are recovered, before any server listens."""
    servers: tuple[ListeningServer, ...] = ()
    """Servers that start after the tasks. At the end they stop first, in reverse order."""
    feeds: tuple[Task, ...] = ()
    """Tasks that start after the servers listen: pod sources, and reports to a cluster."""
    close: tuple[Close, ...] = ()
    """Functions to call at the end, in reverse order, after the components added later are closed."""
    health: tuple[HealthCheck, ...] = ()
    """Health checks of the component, for ``/healthz``."""
    status_listeners: tuple[StatusListener, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of the component's pod sources; each reports to the pod manager when it has delivered all its pods."""
    objects: Mapping[str, ClusterObjects] = {}
    """Access to the API objects that pods may refer to, by name of the pods' source."""
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of further mounts, environment variables and annotations for containers, by unique names."""


class PartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values that every factory in `parts/` needs.

    `host`: state of the machine at the agent's start. `store`: the state database, which is not open yet.
    """

    config: AgentConfig
    plugins: Plugins
    clock: Clock
    host: HostReadings
    agent_id: str
    store: Store
