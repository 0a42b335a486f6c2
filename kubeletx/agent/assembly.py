"""`assemble`: builds the agent's components in the order below, and closes them in reverse order.

    root, event loop ─► node ─► connection to the API server ─► runtimes ─► volumes ─► images ─► plugins ─► pods
    ─► sessions ─► sources ─► views (node and pod status) ─► FornaxCores ─► tasks of plugins ─► clean-up ─► expansion of volumes ─► eviction
    ─► cluster node ─► shutdown ─► guardian ─► admin socket ─► servers

When all are built, it opens the state database, and each component loads its state. Each component is a `Part`. To add
one, write a factory in `parts/` and one line here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeletx.api import Clock
from kubeletx.plugins.loading import Plugins

from .config.tree import AgentConfig
from .edge.part import make_health
from .host.readings import HostReadings
from .lifecycle import Assembly
from .parts.admin import make_admin
from .parts.clean_up import make_clean_up, make_expansion
from .parts.cluster import make_cluster
from .parts.eviction import make_eviction
from .parts.fornax import make_fornax
from .parts.images import make_images
from .parts.link import make_link
from .parts.node import make_node
from .parts.part import Composition
from .parts.plugin_feeds import make_plugin_feeds
from .parts.plugin_services import make_plugins
from .parts.pods import make_pods
from .parts.root import make_event_loop, make_root
from .parts.runtimes import make_runtimes, read_runtimes
from .parts.servers import make_servers
from .parts.sessions import make_session_usage, make_sessions
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
        ctx = make_root(made, config, plugins, clock, host)
        make_event_loop(ctx)
        endpoints = read_runtimes(ctx)
        node = make_node(ctx, endpoints)
        link = make_link(ctx, node)
        runtimes = make_runtimes(ctx, node, link, endpoints)
        volumes = make_volumes(ctx, node)
        images = make_images(ctx, runtimes)
        services = make_plugins(ctx, node, volumes)
        pods = make_pods(ctx, node, link, runtimes, volumes, images, services)
        sessions = make_sessions(ctx, node, volumes, pods)
        sources = make_sources(ctx, node, pods)
        views = make_views(ctx, node, runtimes, images, volumes, pods, services)
        usage = make_session_usage(ctx, node, volumes, runtimes, pods, sessions)
        fornaxcore = make_fornax(ctx, node, runtimes, pods, views, sessions)
        make_plugin_feeds(ctx, services, node, pods, sources, views)
        make_clean_up(ctx, runtimes, volumes, pods)
        make_expansion(ctx, node, volumes, pods)
        make_eviction(ctx, node, runtimes, images, volumes, pods, views)
        cluster = make_cluster(ctx, node, link, runtimes, pods, sources, views)
        shutdowns = make_shutdown(ctx, node, volumes, pods, views, cluster)
        edge = make_health(ctx, node, services, pods, views, cluster, shutdowns, fornaxcore)
        admin = make_admin(
            ctx,
            node,
            runtimes,
            volumes,
            services,
            pods,
            sources,
            views,
            shutdowns=shutdowns,
            sessions=sessions,
            session_usage=usage,
            fornaxcore=fornaxcore,
            edge=edge,
        )
        make_servers(ctx, node, link, volumes, pods, views, admin)
        await made.open(ctx.store, pods.services.board)
        yield Assembly(
            clock=clock,
            parts=tuple(made.parts),
            node=node,
            runtimes=runtimes,
            pods=pods,
            views=views,
            admin=admin,
            enforces_pods_limit="pods" in config.cgroups.enforce_allocatable,
        )
