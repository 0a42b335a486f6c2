"""What plugins register beside runtimes; imported and made only when there is some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import ClusterObjects
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


def make_plugins(
    ctx: PartContext, node: NodeRoom, views: ViewsRoom, objects: Mapping[str, ClusterObjects]
) -> PluginsRoom:
    """Make a host for everything that plugins register beside runtimes. `objects`: of the cluster, by source."""
    if not len(ctx.plugins.registrations):
        return PluginsRoom(part=Part(name="plugins"), rooms=None)
    from ..plugins.rooms import PluginRooms

    rooms = PluginRooms(
        ctx.plugins.registrations,
        parts=PluginHostParts(
            node_name=node.reporter.name,
            root=ctx.config.root_dir,
            clock=ctx.clock,
            events=node.events,
            cluster=objects.get(API),
        ),
        own_settings=ctx.plugins.decode_settings(ctx.config.runtimes.plugins),
        settings=ctx.config.plugins,
        node=node.ref,
        on_checks=views.node.checks_changed,
    )
    tasks = tuple(Task(name=name, run=run) for name, run in rooms.background().items())
    part = Part(name="plugins", tasks=tasks, close=(rooms.close,), health=(rooms.health,))
    return PluginsRoom(part=part, rooms=rooms)
