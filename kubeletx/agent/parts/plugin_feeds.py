"""Component of the agent: the tasks of the health checks and pod sources that plugins registered."""

from __future__ import annotations

from kubeletx.runtimes.endpoints.kinds import WorkloadTypes
from kubeletx.static.manifest import ManifestReader

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .plugin_services import PluginsAssembly
from .pods import PodsAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly


def make_plugin_feeds(
    ctx: PartContext,
    plugins: PluginsAssembly,
    node: NodeAssembly,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
) -> None:
    """Build the tasks that run the plugins' health checks and pod sources."""
    if plugins.services is None:
        return
    from kubeletx.plugins.pod_sources import SourceParts

    parts = SourceParts(
        pods=pods.manager,
        reader=ManifestReader(node_name=node.reporter.name, workload_types=WorkloadTypes(ctx.plugins.kinds)),
        clock=ctx.clock,
        on_failure=sources.health.failed,
    )
    tasks = plugins.services.background(views.node.checks_changed)
    feeds = plugins.services.sources.feeds(parts)
    ctx.made.add(
        Part(
            name="plugin-feeds",
            tasks=tuple(Task(name=name, run=run) for name, run in tasks.items()),
            feeds=tuple(Task(name=f"source-{name}", run=run) for name, run in feeds.items()),
            sources=plugins.services.sources.names,
            objects=dict.fromkeys(plugins.services.sources.names, sources.objects),
        )
    )
