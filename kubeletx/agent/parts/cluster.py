"""Part: the node as a member of a cluster, if there is a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kubeletx.pods.model.sources import API

from ..backend.about import node_name_health
from .link import LinkRoom
from .node import NodeRoom
from .part import Part, PartContext, Task
from .pods import PodsRoom
from .sources import SourcesRoom
from .views import ViewsRoom

if TYPE_CHECKING:
    from ..cluster.member import Cluster


class ClusterRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_cluster_room`: the part, and the node's membership.

    `cluster` None: the node is in no cluster.
    """

    part: Part
    cluster: Cluster | None


def make_cluster_room(
    ctx: PartContext,
    node: NodeRoom,
    link: LinkRoom,
    pods: PodsRoom,
    sources: SourcesRoom,
    views: ViewsRoom,
    names: Callable[[], frozenset[str]],
) -> ClusterRoom:
    """Connect pods, the node and events to the API server, if there is a kubeconfig.

    `names`: returns the names of all pod sources.
    """
    if link.link is None:
        return ClusterRoom(part=Part(name="cluster"), cluster=None)
    from ..cluster.member import make_cluster  # an agent without a cluster does not load it

    cluster = make_cluster(
        ctx.config,
        link.link,
        agent_id=ctx.agent_id,
        node_name=node.reporter.name,
        addresses=node.reporter.ips,
        manager=pods.manager,
        admission=pods.admission,
        sources=lambda: frozenset(name for name in names() if pods.services.sources.of(name).mirrored),
        recorder=node.events,
        watch_node=views.node.watch_node,
        watch_events=partial(node.events.watch_events, since=ctx.clock.now()),
        health=sources.health,
        clock=ctx.clock,
    )
    part = Part(
        name="cluster",
        sources=(API,),
        feeds=(Task(name="api-join", run=cluster.run),),
        status_listeners=(cluster.statuses.board_changed, cluster.mirrors.wake),
        health=(partial(node_name_health, cluster.lease.reporting),),
    )
    return ClusterRoom(part=part, cluster=cluster)
