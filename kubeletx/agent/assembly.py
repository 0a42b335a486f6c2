"""`assemble`: builds the agent's components in the order below, and closes them in reverse order.

    root, event loop ─► node ─► connection to the API server ─► runtimes ─► volumes ─► images ─► plugins ─► pods
    ─► sources ─► views (node and pod status) ─► tasks of plugins ─► clean-up ─► expansion of volumes ─► eviction
    ─► cluster node ─► shutdown ─► admin socket ─► servers

When all are built, it opens the state database, and each component loads its state. Each component is a `Part`. To add
one, write a factory in `parts/` and one line here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeletx.api import Clock
from kubeletx.plugins.loading import Plugins

from .composition import Composition
from .config.tree import AgentConfig
from .host.readings import HostReadings
from .lifecycle import Assembly
from .parts.admin import AdminNeeds, make_admin
from .parts.clean_up import make_clean_up
from .parts.cluster import make_cluster
from .parts.event_loop import make_event_loop
from .parts.eviction import make_eviction
from .parts.expansion import make_expansion
from .parts.images import make_images
from .parts.link import make_link_assembly
from .parts.node import make_node
from .parts.plugin_services import make_plugin_feeds, make_plugins
from .parts.pods import PodNeeds, make_pods
from .parts.root import make_root
from .parts.runtimes import make_runtimes, read_runtimes
from .parts.servers import make_servers
from .parts.shutdown import make_shutdown
from .parts.sources import make_sources
from .parts.views import make_views
from .parts.volumes import make_volumes


@asynccontextmanager
async def assemble(
    config: AgentConfig, *, plugins: Plugins, clock: Clock, host: HostReadings | None = None
) -> AsyncIterator[Assembly]:
    """Build and connect the agent's components; yield them as an `Assembly`, whose `run` starts them.

    Leaving the context closes the components in reverse order. `host`: state of the machine, such as running
    kubelets and free ports; None reads it from this machine.
    """
    async with Composition() as made:
        ctx = made.add(make_root(config, plugins, clock, host)).ctx
        made.add(make_event_loop(config))
        endpoints = read_runtimes(ctx)
        node = made.add(make_node(ctx, endpoints))
        link = made.add(make_link_assembly(ctx, node))
        runtimes = made.add(make_runtimes(ctx, node, link, endpoints))
        volumes = made.add(make_volumes(ctx, node))
        images = made.add(make_images(ctx, runtimes, made.objects))
        plugin_services = made.add(make_plugins(ctx, node, volumes, made.objects))
        below = PodNeeds(
            node=node,
            link=link,
            runtimes=runtimes,
            volumes=volumes,
            images=images,
            objects=made.objects,
            extras=made.extras,
            review=plugin_services.review,
            more_sources=plugin_services.sources,
        )
        pods = made.add(make_pods(ctx, below))
        sources = made.add(make_sources(ctx, node, pods))
        views = made.add(make_views(ctx, node, runtimes, images, volumes, pods, plugin_services.checks))
        made.add(make_plugin_feeds(ctx, plugin_services, node, pods, sources, views))
        made.add(make_clean_up(ctx, runtimes, volumes, pods, made.sources))
        made.add(make_expansion(ctx, node, volumes, pods, made.objects))
        made.add(make_eviction(ctx, node, runtimes, images, volumes, pods, views))
        cluster = made.add(make_cluster(ctx, node, link, pods, sources, views, made.sources))
        made.add(make_shutdown(ctx, node, volumes, pods, views, cluster))
        shown = AdminNeeds(
            node=node,
            link=link,
            runtimes=runtimes,
            volumes=volumes,
            images=images,
            pods=pods,
            sources=sources,
            views=views,
            cluster=cluster,
            plugins=plugin_services,
        )
        admin = made.add(make_admin(ctx, shown, made.health))
        servers = made.add(make_servers(ctx, shown, admin))
        await made.open(ctx.store, pods.services.board)
        yield Assembly(
            clock=clock,
            parts=made.parts,
            node=node,
            runtimes=runtimes,
            pods=pods,
            admin=admin,
            servers=servers,
            enforces_pods_limit="pods" in config.cgroups.enforce_allocatable,
        )
