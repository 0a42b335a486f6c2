"""Component of the agent: its servers: the admin socket, the health port, the read-only port, the kubelet's API."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.server.admin.socket import AdminServer
from kubeletx.server.healthz import health_server

from ..config.ports import kubelet_port
from .admin import AdminAssembly
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Close, ListeningServer, Part, PartContext
from .pods import PodsAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly


def make_servers(
    ctx: PartContext,
    node: NodeAssembly,
    link: LinkAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    admin: AdminAssembly,
) -> None:
    """Build the admin socket and the servers that the configuration enables; none listens yet."""
    settings = ctx.config.server
    servers: list[ListeningServer] = []
    closes: list[Close] = []
    if settings.healthz_port:
        servers.append(
            health_server(admin.backend.about, settings.healthz_bind_address, settings.healthz_port)
        )
    if settings.read_only_port:
        from kubeletx.server.kubelet.readonly import readonly_server

        servers.append(
            readonly_server(
                admin.backend, views.figures, settings.address, settings.read_only_port, admin.http
            )
        )
    port, access = kubelet_port(ctx.config), None
    if port is not None:
        # Only an agent that serves it loads it.
        from .kubelet_api import kubelet_access, kubelet_server, review_client

        reviews = None
        if link.link is not None:
            reviews = review_client(link.link.client, ctx.clock)
            closes.append(reviews.close)
        access = kubelet_access(ctx, reviews, node)
        servers.append(kubelet_server(ctx, port, access, volumes, pods, views, admin))
    # First, since its start is refused while another agent runs.
    backend = replace(admin.backend, access=access)
    servers.insert(0, AdminServer(backend=backend, socket_path=ctx.config.socket_path))
    ctx.made.add(Part(name="servers", servers=tuple(servers), close=tuple(closes)))
