"""Component of the agent: ends pods in order when the host shuts down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletx.node.logind import Logind
from kubeletx.node.shutdown import groups_of
from kubeletx.pods import HostShutdown

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from ..cluster.member import Cluster

SHUTTING_DOWN = "node is shutting down"


def make_shutdown(
    ctx: PartContext,
    node: NodeAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    cluster: Cluster | None,
) -> None:
    """Build the task that watches for a shutdown of the host and then ends the pods.

    A shutdown also closes pod admission and makes the node not Ready.
    """
    settings = ctx.config.shutdown

    def on_change(is_ending: bool) -> None:
        pods.admission.is_shutting_down = is_ending
        views.node.problems_changed(*([SHUTTING_DOWN] if is_ending else []))

    def has_reported() -> bool:
        return cluster is None or cluster.statuses.is_idle

    shutdown = HostShutdown(
        Logind(volumes.files),
        groups_of(settings.grace_seconds, settings.critical_grace_seconds, settings.by_priority),
        pods=pods.services.active,
        clock=ctx.clock,
        events=node.events,
        node=node.ref,
        on_change=on_change,
        has_reported=has_reported,
    )
    ctx.made.add(Part(name="host-shutdown", tasks=(Task(name="host-shutdown", run=shutdown.run),)))
