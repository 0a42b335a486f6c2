"""`Part`: what a room gives to the agent, as a value.

    factory ─► room (typed: registry, manager, …) with its Part ─► Composition
    Part    tables, load ─► tasks ─► servers ─► feeds        close

Each factory in this folder builds one room from the configuration and the rooms before it, without I/O on the loop. The
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
"""Returns health parts; quick, and calls nothing outside the process."""
StatusListener = Callable[[DesiredPod, PodFacts, PodStatus | None], None]
"""Called after each change of a pod's status; status None: the pod is gone."""


class ListeningServer(Protocol):
    """One listening server."""

    async def start(self) -> None:
        """Listen."""
        ...

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        ...


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One background task. It is restarted after a failure; when `run` returns, it is done."""

    name: str
    run: Run
    on_failure: Callable[[Exception], None] | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One room's part of the agent. Every field except the name is optional."""

    name: str
    tables: tuple[MetaData, ...] = ()
    """The room's tables in the state database."""
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
    """Health checks of the room, for ``/healthz``."""
    status_listeners: tuple[StatusListener, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of the pod sources that report `synced` to the manager."""
    objects: Mapping[str, ClusterObjects] = {}
    """Cluster objects for pods, by the name of their source."""
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of mounts, variables and annotations for units, by names that no other part uses."""


class PartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of every factory."""

    config: AgentConfig
    plugins: Plugins
    clock: Clock
    host: HostReadings
    agent_id: str
    store: Store
