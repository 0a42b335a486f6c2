"""Part: the agent's side of the servers, one object per subject."""

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
from .cluster import ClusterRoom
from .images import ImagesRoom
from .link import LinkRoom
from .node import NodeRoom
from .part import Part, PartContext
from .plugin_rooms import PluginsRoom
from .pods import PodsRoom
from .runtimes import RuntimesRoom
from .sources import SourcesRoom
from .views import ViewsRoom
from .volumes import VolumesRoom


class AdminNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the agent that the admin server reads."""

    node: NodeRoom
    link: LinkRoom
    runtimes: RuntimesRoom
    volumes: VolumesRoom
    images: ImagesRoom
    pods: PodsRoom
    sources: SourcesRoom
    views: ViewsRoom
    cluster: ClusterRoom
    plugins: PluginsRoom


class AdminRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_admin`: the objects that answer the servers' requests.

    `pods` is also part of `backend`. `http`: counters of requests to the servers.
    """

    part: Part
    backend: AdminBackend
    pods: PodBackend
    http: HttpCounts


def make_admin(
    ctx: PartContext, needs: AdminNeeds, health: Callable[[], tuple[PartHealth, ...]]
) -> AdminRoom:
    """Make the objects that answer the servers' requests.

    `health`: returns the health of every part of the agent.
    """
    services, manager = needs.pods.services, needs.pods.manager
    registry, http = needs.runtimes.registry, HttpCounts()
    reader = LogReader(blocking=needs.volumes.files, watcher=needs.pods.watcher)
    pods = PodBackend(manager, services, needs.sources.applied, PodLogs(needs.node.context, services, reader))
    backend = AdminBackend(
        about=AgentBackend(
            config=ctx.config,
            agent_id=ctx.agent_id,
            node_name=needs.node.reporter.name,
            started_at=ctx.clock.now(),
            plugins=needs.runtimes.plugins,
            counted=_counted(needs, http),
            health=health,
            plugin_rooms=needs.plugins.rooms,
        ),
        pods=pods,
        machines=MachineBackend(services, pods.find_worker),
        node=needs.views.node,
        runtimes=RuntimeBackend(
            registry, manager, ctx.plugins.kinds, needs.images.stores, needs.runtimes.plugins
        ),
        images=needs.views.images,
    )
    return AdminRoom(part=Part(name="admin"), backend=backend, pods=pods, http=http)


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
        plugins=needs.plugins.rooms.counts if needs.plugins.rooms is not None else None,
    )
