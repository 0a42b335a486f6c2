"""Components of the agent for registrations of plugins other than runtimes, such as health checks and pod sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kubeletx.node.readiness import CheckFacts
from kubeletx.plugins.host import PluginHostParts
from kubeletx.pods import Review
from kubeletx.pods.model.sources import API, SourceTraits

from ..host.pod_cgroups import may_make_cgroups
from ..host.slow_calls import watched_markers
from .node import NodeAssembly
from .part import Part, PartContext
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from kubeletx.plugins.services import PluginServices
    from kubeletx.runtimes.isolation.process import ChildCgroup


class PluginsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The registrations of plugins other than runtimes, from `make_plugins`.

    `services` None: plugins registered only runtimes.
    """

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


def make_plugins(ctx: PartContext, node: NodeAssembly, volumes: VolumesAssembly) -> PluginsAssembly:
    """Call the factories of the health checks, pod sources and so on that plugins registered.

    Their volume drivers are added to the table of `volumes`.
    """
    if not len(ctx.plugins.registrations):
        return PluginsAssembly(services=None)
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
            cluster=ctx.made.objects.get(API),
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
    ctx.made.add(
        Part(
            name="plugins",
            metrics=services.counts.metrics(),
            close=(services.close,),
            health=(services.health,),
        )
    )
    return PluginsAssembly(services=services)


def _child_cgroup(ctx: PartContext) -> Callable[[str], ChildCgroup] | None:
    """Return the function that returns the cgroup of a distribution's child; None if the agent makes no cgroups."""
    if all(registration.origin.is_own for registration in ctx.plugins.registrations):
        return None
    if not may_make_cgroups(ctx.config.cgroups, ctx.host.trees):
        return None
    from kubeletx.plugins.isolated.process import child_cgroups

    return child_cgroups(ctx.host.trees, ctx.config.cgroups.root, ctx.config.plugins)
