"""Component of the agent: the objects that answer the requests of the servers, one per subject."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeletx.pods import LogReader
from kubeletx.server.backend import AdminBackend
from kubeletx.server.metrics.http_counts import HttpCounts
from kubeletx.server.views import PartHealth

from ..backend.about import AgentBackend
from ..backend.counted import Counted, SecretFigures
from ..backend.logs import PodLogs
from ..backend.machine.verbs import MachineBackend
from ..backend.pods import PodBackend
from ..backend.runtimes import RuntimeBackend
from ..backend.standby import StandbyBackend
from ..backend.volumes import VolumeBackend
from .cluster import ClusterAssembly
from .images import ImagesAssembly
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext
from .plugin_services import PluginsAssembly
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly


class AdminNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Components of the agent that `make_admin` and `make_servers` use: the results of earlier factories."""

    node: NodeAssembly
    link: LinkAssembly
    runtimes: RuntimesAssembly
    volumes: VolumesAssembly
    images: ImagesAssembly
    pods: PodsAssembly
    sources: SourcesAssembly
    views: ViewsAssembly
    cluster: ClusterAssembly
    plugins: PluginsAssembly


class AdminAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_admin`: the objects that answer the requests of the servers.

    `backend`: all of them. `pods`: the one for pod requests, which `backend` contains too. `http`: counters of HTTP
    requests to the servers.
    """

    part: Part
    backend: AdminBackend
    pods: PodBackend
    http: HttpCounts


def make_admin(
    ctx: PartContext, needs: AdminNeeds, health: Callable[[], tuple[PartHealth, ...]]
) -> AdminAssembly:
    """Build the objects that answer the requests of the servers.

    `health`: returns the health of every component of the agent.
    """
    services, manager = needs.pods.services, needs.pods.manager
    registry, http = needs.runtimes.registry, HttpCounts()
    reader = LogReader(blocking=needs.volumes.files, watcher=needs.pods.watcher)
    pods = PodBackend(
        manager,
        services,
        needs.sources.applied,
        PodLogs(needs.node.context, services, reader),
        streams_thaw=ctx.config.pods.standby_streams == "thaw",
        standby_delay_seconds=ctx.config.pods.standby_delay_seconds,
    )
    backend = AdminBackend(
        about=AgentBackend(
            config=ctx.config,
            agent_id=ctx.agent_id,
            node_name=needs.node.reporter.name,
            started_at=ctx.clock.now(),
            plugins=needs.runtimes.plugins,
            counted=_counted(needs, http),
            health=health,
            plugin_services=needs.plugins.services,
        ),
        pods=pods,
        machines=MachineBackend(services, pods.find_worker),
        standby=StandbyBackend(services, pods.find_worker),
        node=needs.views.node,
        runtimes=RuntimeBackend(
            registry, manager, ctx.plugins.kinds, needs.images.stores, needs.runtimes.plugins
        ),
        images=needs.views.images,
        volumes=VolumeBackend(
            manager=manager,
            preparer=needs.volumes.preparer,
            disks=needs.views.disks,
            board=needs.views.volumes,
            clock=ctx.clock,
        ),
    )
    return AdminAssembly(part=Part(name="admin"), backend=backend, pods=pods, http=http)


def _counted(needs: AdminNeeds, http: HttpCounts) -> Counted:
    link, cluster = needs.link.link, needs.cluster.cluster
    return Counted(
        registry=needs.runtimes.registry,
        manager=needs.pods.manager,
        counters=needs.pods.services.counters,
        probes=needs.pods.probes,
        claims=needs.views.volumes,
        volumes=needs.volumes.preparer,
        cgroups=needs.pods.cgroups,
        secrets=SecretFigures(
            providers=needs.images.providers,
            client=link.client_rotation if link is not None else None,
            server=cluster.server_rotation if cluster is not None else None,
        ),
        http=http,
        requests=link.client.counts if link is not None else None,
        plugins=needs.plugins.services.counts if needs.plugins.services is not None else None,
    )
