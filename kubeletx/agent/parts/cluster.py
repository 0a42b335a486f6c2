"""Component of the agent: the tasks that connect the node to its cluster, if there is a kubeconfig."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kubeletx.pods.model.sources import API

from ..backend.about import node_name_health
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly

if TYPE_CHECKING:
    from ..cluster.member import Cluster


def make_cluster(
    ctx: PartContext,
    node: NodeAssembly,
    link: LinkAssembly,
    runtimes: RuntimesAssembly,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
) -> Cluster | None:
    """Build the objects that synchronise pods, the node and events with the API server; None without a kubeconfig."""
    if link.link is None:
        return None
    from .membership import make_membership  # an agent without a cluster does not load it

    cluster = make_membership(ctx, node, link.link, pods, sources, views)
    cluster.node.subscribe(views.node.node_changed)
    cluster.node.subscribe(runtimes.pod_cidrs.node_changed)
    ctx.made.add(
        Part(
            name="cluster",
            sources=(API,),
            feeds=(Task(name="api-join", run=cluster.run),),
            metrics=cluster.server_rotation.metrics() if cluster.server_rotation is not None else (),
            status_listeners=(cluster.statuses.board_changed, cluster.mirrors.wake),
            health=(partial(node_name_health, cluster.lease.reporting),),
        )
    )
    return cluster
