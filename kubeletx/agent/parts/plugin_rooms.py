"""What plugins register beside runtimes; imported and made only when there is some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import ClusterObjects
from kubeletx.pods.dependencies import Review
from kubeletx.pods.model.sources import API

from ..plugins.host_parts import PluginHostParts
from .node import NodeRoom
from .part import Part, PartContext, Task
from .views import ViewsRoom

if TYPE_CHECKING:
    from ..plugins.rooms import PluginRooms


class PluginsRoom(msgspec.Struct, frozen=True, kw_only=True):
    """`rooms` None: plugins register only runtimes."""

    part: Part
    rooms: PluginRooms | None

    @property
    def review(self) -> Review | None:
        """Reviews new pods; None when no plugin does."""
        return self.rooms.review if self.rooms is not None else None


class PluginFeeds(msgspec.Struct, frozen=True):
    """What needs the rooms above: tasks of plugins that report to them."""

    part: Part


def make_plugins(ctx: PartContext, node: NodeRoom, objects: Mapping[str, ClusterObjects]) -> PluginsRoom:
    """Make a host for everything that plugins register beside runtimes. `objects`: of the cluster, by source."""
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


def make_plugin_feeds(plugins: PluginsRoom, views: ViewsRoom) -> PluginFeeds:
    """The tasks of what plugins registered."""
    if plugins.rooms is None:
        return PluginFeeds(Part(name="plugin-feeds"))
    tasks = plugins.rooms.background(views.node.checks_changed)
    return PluginFeeds(
        Part(name="plugin-feeds", tasks=tuple(Task(name=name, run=run) for name, run in tasks.items()))
    )
