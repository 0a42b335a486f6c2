"""Component of the agent: the tasks that connect the node to its cluster, if there is a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kubeletx.pods.model.sources import API

from ..backend.about import node_name_health
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly

if TYPE_CHECKING:
    from ..cluster.member import Cluster


class ClusterAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_cluster`: the tasks and objects that connect the node to its cluster.

    `cluster` None: the node is in no cluster.
    """

    part: Part
    cluster: Cluster | None


def make_cluster(
    ctx: PartContext,
    node: NodeAssembly,
    link: LinkAssembly,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
    names: Callable[[], frozenset[str]],
) -> ClusterAssembly:
    """Build the objects that synchronise pods, the node and events with the API server, if there is a kubeconfig.

    `names`: returns the names of all pod sources; the pods of some of them get mirror pods.
    """
    if link.link is None:
        return ClusterAssembly(part=Part(name="cluster"), cluster=None)
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
    cluster.node.subscribe(views.node.node_changed)
    part = Part(
        name="cluster",
        sources=(API,),
        feeds=(Task(name="api-join", run=cluster.run),),
        status_listeners=(cluster.statuses.board_changed, cluster.mirrors.wake),
        health=(partial(node_name_health, cluster.lease.reporting),),
    )
    return ClusterAssembly(part=part, cluster=cluster)
