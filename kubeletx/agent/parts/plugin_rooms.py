"""Part of plugin registrations other than runtimes; imported only if there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import ClusterObjects
from kubeletx.pods import Review
from kubeletx.pods.model.sources import API, SourceTraits
from kubeletx.runtimes.endpoints.kinds import WorkloadTypes
from kubeletx.static.manifest import ManifestReader

from ..plugins.host_parts import PluginHostParts
from .node import NodeRoom
from .part import Part, PartContext, Task
from .pods import PodsRoom
from .sources import SourcesRoom
from .views import ViewsRoom

if TYPE_CHECKING:
    from ..plugins.rooms import PluginRooms


class PluginsRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_plugins`: the part, and what plugins registered other than runtimes.

    `rooms` None: plugins registered only runtimes.
    """

    part: Part
    rooms: PluginRooms | None

    @property
    def review(self) -> Review | None:
        """Function that reviews new pods by the plugins' admission checks; None if there are none."""
        return self.rooms.review if self.rooms is not None else None

    @property
    def sources(self) -> tuple[SourceTraits, ...]:
        """Name and remedy of each pod source that a plugin registered."""
        names = self.rooms.sources.names if self.rooms is not None else ()
        return tuple(SourceTraits(name=name, remedy=f"remove it from pod source {name}") for name in names)


class PluginFeeds(msgspec.Struct, frozen=True):
    """Result of `make_plugin_feeds`: the part with the tasks of the plugins' health checks and pod sources."""

    part: Part


def make_plugins(ctx: PartContext, node: NodeRoom, objects: Mapping[str, ClusterObjects]) -> PluginsRoom:
    """Make the objects of everything that plugins registered besides runtimes.

    `objects`: access to API objects by pod source.
    """
    if not len(ctx.plugins.registrations):
        return PluginsRoom(part=Part(name="plugins"), rooms=None)
    from kubeletx.store.records import StoreRecords

    from ..plugins.rooms import PluginRooms

    rooms = PluginRooms(
        ctx.plugins.registrations,
        parts=PluginHostParts(
            node_name=node.reporter.name,
            root=ctx.config.root_dir,
            clock=ctx.clock,
            events=node.events,
            records=StoreRecords(ctx.store).of,
            cluster=objects.get(API),
        ),
        own_settings=ctx.plugins.decode_settings(ctx.config.runtimes.plugins),
        settings=ctx.config.plugins,
        node=node.ref,
    )
    return PluginsRoom(part=Part(name="plugins", close=(rooms.close,), health=(rooms.health,)), rooms=rooms)


def make_plugin_feeds(
    ctx: PartContext,
    plugins: PluginsRoom,
    node: NodeRoom,
    pods: PodsRoom,
    sources: SourcesRoom,
    views: ViewsRoom,
) -> PluginFeeds:
    """Make the tasks of plugins' health checks and pod sources."""
    if plugins.rooms is None:
        return PluginFeeds(Part(name="plugin-feeds"))
    from ..plugins.pod_sources import SourceParts

    parts = SourceParts(
        pods=pods.manager,
        reader=ManifestReader(node_name=node.reporter.name, workload_types=WorkloadTypes(ctx.plugins.kinds)),
        clock=ctx.clock,
        on_failure=sources.health.failed,
    )
    tasks = plugins.rooms.background(views.node.checks_changed)
    feeds = plugins.rooms.sources.feeds(parts)
    part = Part(
        name="plugin-feeds",
        tasks=tuple(Task(name=name, run=run) for name, run in tasks.items()),
        feeds=tuple(Task(name=f"source-{name}", run=run) for name, run in feeds.items()),
        sources=plugins.rooms.sources.names,
    )
    return PluginFeeds(part)
