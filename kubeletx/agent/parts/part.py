"""`Part`: one part of the agent as a value: its tables, tasks, servers and health checks.

    factory ─► typed result (registry, manager, …) with its Part ─► Composition
    Part    tables, load ─► tasks ─► servers ─► feeds        close

Each factory in this folder builds one part from the configuration and the results of earlier factories. The
composition opens the store with the tables of all parts, then loads and closes them (see `kubeletx.agent.composition`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from sqlalchemy import MetaData

from kubeletx.api import Clock, ClusterObjects
from kubeletx.kube.types.core import PodStatus
from kubeletx.pods import DesiredPod, ExtrasProvider, PodFacts
from kubeletx.server.views import PartHealth
from kubeletx.store import Store

from ..config.tree import AgentConfig
from ..host.readings import HostReadings
from ..plugins import Plugins

Run = Callable[[], Awaitable[None]]
Close = Callable[[], Awaitable[None] | None]
HealthCheck = Callable[[], Sequence[PartHealth]]
"""Returns the health of one part of the agent; quick, and calls nothing outside the process."""
StatusListener = Callable[[DesiredPod, PodFacts, PodStatus | None], None]
"""Called after each change of a pod's status; status None: the pod is gone."""


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

    It is restarted after a failure; when `run` returns without an error, it is done. `on_failure`: called with
    each error.
    """

    name: str
    run: Run
    on_failure: Callable[[Exception], None] | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the agent: what it adds to the agent's tables, tasks, servers and checks.

    Only `name` is required.
    """

    name: str
    tables: tuple[MetaData, ...] = ()
    """The part's tables in the state database."""
    load: Run | None = None
    """Runs once the state database is open, in the order of the parts."""
    tasks: tuple[Task, ...] = ()
    """Tasks that start once pods are recovered, before any server listens."""
    servers: tuple[ListeningServer, ...] = ()
    """Servers that start once the tasks run, and stop first, in reverse order."""
    feeds: tuple[Task, ...] = ()
    """Tasks that start once the servers listen: pod sources and reporters to a cluster."""
    close: tuple[Close, ...] = ()
    """Functions to call at the end, in reverse order, after the parts added later are closed."""
    health: tuple[HealthCheck, ...] = ()
    """Health checks of the part, for ``/healthz``."""
    status_listeners: tuple[StatusListener, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of the pod sources that report `synced` to the manager."""
    objects: Mapping[str, ClusterObjects] = {}
    """Access to the API objects that pods may name, by the name of the pods' source."""
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of mounts, variables and annotations for units, by names that no other part uses."""


class PartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values that every factory of a part needs."""

    config: AgentConfig
    plugins: Plugins
    clock: Clock
    host: HostReadings
    agent_id: str
    store: Store
