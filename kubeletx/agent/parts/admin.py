"""The objects that answer the requests of the servers, one per subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kubeletx.pods import LogReader
from kubeletx.server.backend import AdminBackend
from kubeletx.server.metrics.http_counts import HttpCounts

from ..backend.about import AgentBackend
from ..backend.logs import PodLogs
from ..backend.machine.verbs import MachineBackend
from ..backend.objects import ObjectBackend
from ..backend.pods import PodBackend
from ..backend.sessions import SessionBackend
from ..backend.standby import StandbyBackend
from .node import NodeAssembly
from .part import Part, PartContext
from .plugin_services import PluginsAssembly
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .shutdown import PodsDrain, Shutdowns
from .sources import SourcesAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from kubeletx.sessions.service import Sessions
    from kubeletx.sessions.usage import SessionUsage


class AdminAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that answer the requests of the servers, from `make_admin`.

    `backend`: all of them. `pods`: the one for pod requests, which `backend` contains too. `http`: counters of HTTP
    requests to the servers.
    """

    backend: AdminBackend
    pods: PodBackend
    http: HttpCounts


def make_admin(  # noqa: PLR0913 - one argument for each component
    ctx: PartContext,
    node: NodeAssembly,
    runtimes: RuntimesAssembly,
    volumes: VolumesAssembly,
    plugins: PluginsAssembly,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
    *,
    shutdowns: Shutdowns,
    sessions: Sessions,
    session_usage: SessionUsage,
    fornaxcore: Callable[[], msgspec.Struct],
    edge: Callable[[], msgspec.Struct],
) -> AdminAssembly:
    """Build the objects that answer the requests of the servers. `fornaxcore`: from `make_fornax`, `edge`: from `make_health`."""
    services, http = pods.services, HttpCounts()
    reader = LogReader(blocking=volumes.files, watcher=pods.watcher)
    pod_backend = PodBackend(
        pods.manager,
        services,
        sources.applied,
        PodLogs(node.context, services, reader),
        streams_thaw=ctx.config.pods.standby_streams == "thaw",
        standby_delay_seconds=ctx.config.pods.standby_delay_seconds,
        is_cordoned=lambda: pods.admission.is_cordoned,
    )
    backend = AdminBackend(
        about=AgentBackend(
            config=ctx.config,
            agent_id=ctx.agent_id,
            node_name=node.reporter.name,
            started_at=ctx.clock.now(),
            plugins=runtimes.plugins,
            registry=runtimes.registry,
            metrics=ctx.made.metrics,
            health=ctx.made.health,
            plugin_services=plugins.services,
        ),
        pods=pod_backend,
        objects=ObjectBackend(sources.objects, sources.applied_objects, ctx.config.root_dir / "claims"),
        machines=MachineBackend(services, pod_backend.find_worker),
        standby=StandbyBackend(services, pod_backend.find_worker),
        node=views.node,
        drain=PodsDrain(shutdowns, ctx.clock),
        runtimes=views.runtimes,
        images=views.images,
        volumes=views.volumes,
        sessions=SessionBackend(sessions, session_usage),
        fornaxcore=fornaxcore,
        edge=edge,
    )
    ctx.made.add(Part(name="admin", metrics=http.metrics()))
    return AdminAssembly(backend=backend, pods=pod_backend, http=http)
