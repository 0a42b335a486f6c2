"""Components of the agent for registrations of plugins other than runtimes, such as health checks and pod sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import ClusterObjects
from kubeletx.node.readiness import CheckFacts
from kubeletx.plugins.host import PluginHostParts
from kubeletx.pods import Review
from kubeletx.pods.model.sources import API, SourceTraits
from kubeletx.runtimes.endpoints.kinds import WorkloadTypes
from kubeletx.static.manifest import ManifestReader

from ..host.pod_cgroups import may_make_cgroups
from ..host.slow_calls import watched_markers
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from kubeletx.plugins.services import PluginServices
    from kubeletx.runtimes.isolation.process import ChildCgroup


class PluginsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_plugins`: the registrations of plugins other than runtimes.

    `services` None: plugins registered only runtimes.
    """

    part: Part
    services: PluginServices | None

    @property
    def review(self) -> Review | None:
        """Function that reviews a new pod with the plugins' admission checks; None if no plugin has one."""
        return self.services.review if self.services is not None else None

    @property
    def checks(self) -> tuple[CheckFacts, ...]:
        """The plugins' health checks, none of which has run yet; the Node has a condition for each from the start."""
        return self.services.checks() if self.services is not None else ()

    @property
    def sources(self) -> tuple[SourceTraits, ...]:
        """Traits of each pod source that a plugin registered: its name, and advice how to remove a pod there."""
        names = self.services.sources.names if self.services is not None else ()
        return tuple(SourceTraits(name=name, remedy=f"remove it from pod source {name}") for name in names)


class PluginFeeds(msgspec.Struct, frozen=True):
    """Component built by `make_plugin_feeds`: the tasks of the plugins' health checks and pod sources."""

    part: Part


def make_plugins(
    ctx: PartContext, node: NodeAssembly, volumes: VolumesAssembly, objects: Mapping[str, ClusterObjects]
) -> PluginsAssembly:
    """Call the factories of the health checks, pod sources and so on that plugins registered.

    Their volume drivers are added to the table of `volumes`. `objects`: access to API objects by name of the pod
    source.
    """
    if not len(ctx.plugins.registrations):
        return PluginsAssembly(part=Part(name="plugins"), services=None)
    from kubeletx.plugins.services import PluginServices
    from kubeletx.store.records import StoreRecords

    services = PluginServices(
        ctx.plugins.registrations,
        parts=PluginHostParts(
            node_name=node.reporter.name,
            root=ctx.config.root_dir,
            clock=ctx.clock,
            events=node.events,
            records=StoreRecords(ctx.store).of,
            cluster=objects.get(API),
            child_cgroup=_child_cgroup(ctx),
            volume_plugin_directory=ctx.config.volumes.plugin_dir,
        ),
        own_settings=ctx.plugins.decode_settings(ctx.config.runtimes.plugins),
        settings=ctx.config.plugins,
        markers=watched_markers(ctx.config.root_dir, ctx.config.plugins),
        node=node.ref,
        isolation=ctx.config.runtimes.plugin_isolation,
        configured=ctx.config.runtimes.plugins.keys(),
    )
    for driver in services.volume_drivers:
        volumes.preparer.drivers.add(driver.entry)
    return PluginsAssembly(
        part=Part(name="plugins", close=(services.close,), health=(services.health,)), services=services
    )


def _child_cgroup(ctx: PartContext) -> Callable[[str], ChildCgroup] | None:
    """Return the function that returns the cgroup of a distribution's child; None if the agent makes no cgroups."""
    if all(one.origin.is_own for one in ctx.plugins.registrations):
        return None
    if not may_make_cgroups(ctx.config.cgroups, ctx.host.trees):
        return None
    from kubeletx.plugins.isolated.cgroups import child_cgroups

    return child_cgroups(ctx.host.trees, ctx.config.cgroups.root, ctx.config.plugins)


def make_plugin_feeds(
    ctx: PartContext,
    plugins: PluginsAssembly,
    node: NodeAssembly,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
) -> PluginFeeds:
    """Build the tasks that run the plugins' health checks and pod sources."""
    if plugins.services is None:
        return PluginFeeds(Part(name="plugin-feeds"))
    from kubeletx.plugins.pod_sources import SourceParts

    parts = SourceParts(
        pods=pods.manager,
        reader=ManifestReader(node_name=node.reporter.name, workload_types=WorkloadTypes(ctx.plugins.kinds)),
        clock=ctx.clock,
        on_failure=sources.health.failed,
    )
    tasks = plugins.services.background(views.node.checks_changed)
    feeds = plugins.services.sources.feeds(parts)
    part = Part(
        name="plugin-feeds",
        tasks=tuple(Task(name=name, run=run) for name, run in tasks.items()),
        feeds=tuple(Task(name=f"source-{name}", run=run) for name, run in feeds.items()),
        sources=plugins.services.sources.names,
    )
    return PluginFeeds(part)
