"""Component of the agent: its servers: the admin socket, the health port, the read-only port, the kubelet's API."""

from __future__ import annotations

import msgspec

from kubeletx.server.admin.socket import AdminServer
from kubeletx.server.healthz import health_server

from ..backend.checkpoints import CheckpointBackend
from ..backend.figures import FigureBackend
from ..config.ports import kubelet_port
from .admin import AdminAssembly, AdminNeeds
from .part import Close, ListeningServer, Part, PartContext


class ServersAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_servers`: the servers of the agent.

    `figures`: measures the usage that the kubelet's API serves as metrics.
    """

    part: Part
    figures: FigureBackend


def make_servers(ctx: PartContext, needs: AdminNeeds, admin: AdminAssembly) -> ServersAssembly:
    """Build the admin socket and the servers that the configuration enables; none listens yet."""
    settings, figures = ctx.config.server, _figures(ctx, needs)
    servers: list[ListeningServer] = [AdminServer(backend=admin.backend, socket_path=ctx.config.socket_path)]
    closes: list[Close] = []
    if settings.healthz_port:
        servers.append(
            health_server(admin.backend.about, settings.healthz_bind_address, settings.healthz_port)
        )
    if settings.read_only_port:
        from kubeletx.server.kubelet.readonly import readonly_server

        servers.append(
            readonly_server(admin.backend, figures, settings.address, settings.read_only_port, admin.http)
        )
    port = kubelet_port(ctx.config)
    if port is not None:
        from .kubelet_api import kubelet_server, review_client  # only an agent that serves it loads it

        reviews = None
        if needs.link.link is not None:
            reviews = review_client(needs.link.link.client, ctx.clock)
            closes.append(reviews.close)
        servers.append(
            kubelet_server(
                ctx.config,
                port,
                admin.backend,
                figures,
                CheckpointBackend(admin.pods, ctx.config.root_dir, ctx.clock),
                reviews,
                node_name=needs.node.reporter.name,
                addresses=needs.node.reporter.ips,
                websockets=needs.pods.services.counters.websocket_streams,
                http_counts=admin.http,
                blocking=needs.volumes.files,
                clock=ctx.clock,
            )
        )
    return ServersAssembly(
        part=Part(name="servers", servers=tuple(servers), close=tuple(closes)), figures=figures
    )


def _figures(ctx: PartContext, needs: AdminNeeds) -> FigureBackend:
    return FigureBackend(
        node_name=needs.node.reporter.name,
        usage=needs.views.usage,
        stores=needs.images.stores,
        manager=needs.pods.manager,
        services=needs.pods.services,
        context=needs.node.context,
        cgroups=needs.pods.cgroups,
        trees=ctx.host.trees,
        disks=needs.views.disks,
        volumes=needs.views.volumes,
        blocking=needs.volumes.files,
        clock=ctx.clock,
    )
