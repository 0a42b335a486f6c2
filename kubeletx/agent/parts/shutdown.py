"""Component of the agent: ends pods in order when the host shuts down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubeletx.node.logind import Logind
from kubeletx.node.shutdown import ShutdownGroup, groups_of
from kubeletx.pods import HostShutdown, ShutdownLock

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from ..cluster.member import Cluster

SHUTTING_DOWN = "node is shutting down"


class Shutdowns:
    """Tasks that end the pods, one for each place that announces a shutdown of the host.

    A shutdown also closes pod admission and makes the node not Ready.
    """

    def __init__(
        self,
        ctx: PartContext,
        node: NodeAssembly,
        pods: PodsAssembly,
        views: ViewsAssembly,
        cluster: Cluster | None,
    ) -> None:
        settings = ctx.config.shutdown
        self.groups = groups_of(settings.grace_seconds, settings.critical_grace_seconds, settings.by_priority)
        """Configured groups of pods; empty: pods do not end when systemd-logind announces a shutdown."""
        self._ctx, self._node, self._pods, self._views, self._cluster = ctx, node, pods, views, cluster
        self._announced: set[str] = set()

    def watch(self, name: str, lock: ShutdownLock, groups: Sequence[ShutdownGroup]) -> None:
        """Add the task `name`, which waits for shutdowns of `lock` and then ends the pods."""

        def on_change(is_ending: bool) -> None:
            (self._announced.add if is_ending else self._announced.discard)(name)
            self._pods.admission.is_shutting_down = bool(self._announced)
            self._views.node.problems_changed(*([SHUTTING_DOWN] if self._announced else []))

        shutdown = HostShutdown(
            lock,
            groups,
            pods=self._pods.services.active,
            clock=self._ctx.clock,
            events=self._node.events,
            node=self._node.ref,
            on_change=on_change,
            has_reported=lambda: self._cluster is None or self._cluster.statuses.is_idle,
        )
        self._ctx.made.add(Part(name=name, tasks=(Task(name=name, run=shutdown.run),)))


def make_shutdown(
    ctx: PartContext,
    node: NodeAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    cluster: Cluster | None,
) -> Shutdowns:
    """Build the task that ends the pods when systemd-logind announces a shutdown of the host."""
    shutdowns = Shutdowns(ctx, node, pods, views, cluster)
    shutdowns.watch("host-shutdown", Logind(volumes.files), shutdowns.groups)
    return shutdowns
