"""Part: the watch for a shutdown of the host."""

from __future__ import annotations

import msgspec

from kubeletx.node.logind import Logind
from kubeletx.node.shutdown import groups_of
from kubeletx.pods import HostShutdown

from .cluster import ClusterRoom
from .node import NodeRoom
from .part import Part, PartContext, Task
from .pods import PodsRoom
from .views import ViewsRoom
from .volumes import VolumesRoom

SHUTTING_DOWN = "node is shutting down"


class ShutdownRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_shutdown`: the part with its one task."""

    part: Part


def make_shutdown(
    ctx: PartContext,
    node: NodeRoom,
    volumes: VolumesRoom,
    pods: PodsRoom,
    views: ViewsRoom,
    cluster: ClusterRoom,
) -> ShutdownRoom:
    """Make the task that watches for a shutdown of the host.

    A shutdown closes admission and makes the node not Ready.
    """
    settings = ctx.config.shutdown

    def on_change(is_going: bool) -> None:
        pods.gate.is_shutting_down = is_going
        views.node.problems_changed(*([SHUTTING_DOWN] if is_going else []))

    def has_told() -> bool:
        return cluster.cluster is None or cluster.cluster.statuses.is_idle

    shutdown = HostShutdown(
        Logind(volumes.files),
        groups_of(settings.grace_seconds, settings.critical_grace_seconds, settings.by_priority),
        pods=pods.services.active,
        clock=ctx.clock,
        events=node.events,
        node=node.ref,
        on_change=on_change,
        has_told=has_told,
    )
    return ShutdownRoom(
        part=Part(name="host-shutdown", tasks=(Task(name="host-shutdown", run=shutdown.run),))
    )
