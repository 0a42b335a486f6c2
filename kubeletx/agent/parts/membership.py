"""`make_membership`: builds the node's membership in a cluster; imported only if there is a kubeconfig."""

from __future__ import annotations

from functools import partial

from kubeletx.api import PodUid
from kubeletx.apiserver.certificates.key_pairs import Subject
from kubeletx.apiserver.events import EventReporter
from kubeletx.apiserver.mirrors.mirrors import Mirrors
from kubeletx.apiserver.node.api_node import ApiNode, NodePolicy
from kubeletx.apiserver.node.lease import NodeLease
from kubeletx.apiserver.node.taints import TypeTaints
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.kube.client import Reflector
from kubeletx.kube.client.resources import NODES, PODS
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node
from kubeletx.runtimes.images.limits import TokenBucket

from ..cluster.access import server_rotation
from ..cluster.link import ClusterLink
from ..cluster.member import Cluster, identity_of, registration_taints, static_pods
from ..config.kubelet_words import EXTERNAL
from .node import NodeAssembly
from .part import PartContext
from .pods import PodsAssembly
from .sources import SourcesAssembly
from .views import ViewsAssembly


def make_membership(
    ctx: PartContext,
    node: NodeAssembly,
    link: ClusterLink,
    pods: PodsAssembly,
    sources: SourcesAssembly,
    views: ViewsAssembly,
) -> Cluster:
    """Build the objects that connect the node to its cluster; they use the connection `link`."""
    config, clock, manager = ctx.config, ctx.clock, pods.manager
    settings, client, node_name = config.cluster, link.client, node.reporter.name
    heartbeats = client.lane(None)  # not throttled: an agent with many other requests still renews its lease

    def is_here(uid: PodUid) -> bool:
        return uid in manager.workers or any(queued.uid == uid for queued in manager.queued())

    def are_all_seen() -> bool:
        """Return True if every source whose pods get mirror pods has delivered all its pods."""
        traits = pods.services.sources
        return all(name in manager.synced_sources for name in ctx.made.sources() if traits.of(name).mirrored)

    lease = NodeLease(
        heartbeats,
        node_name,
        clock=clock,
        duration_seconds=settings.lease_seconds,
        identity=identity_of(ctx.agent_id, clock),
        events=node.events,
    )
    api_pods = ApiPods(manager, is_here=is_here, may_begin=lambda: lease.reporting.is_allowed)
    statuses = StatusReporter(client, api_pods, clock=clock, is_here=is_here)
    mirrors = Mirrors(
        client,
        api_pods,
        lambda: static_pods(manager),
        all_seen=are_all_seen,
        events=node.events,
        clock=clock,
    )
    api_node = ApiNode(
        heartbeats,
        node_name,
        views.node.watch_node,
        clock=clock,
        policy=NodePolicy(
            register=settings.register_node,
            register_again=settings.register_deleted_node,
            taints=registration_taints(config),
            schedulable=settings.register_schedulable,
            external_cloud=config.node.cloud_provider == EXTERNAL,
            update_seconds=config.node.status_update_seconds,
            report_seconds=settings.report_seconds,
        ),
    )
    api_node.subscribe(mirrors.node_changed)
    taints = None
    if link.taint_client is not None:
        taints = TypeTaints(link.taint_client, views.node.watch_node, clock=clock)
        api_node.subscribe(taints.node_changed)
    api_node.subscribe(lambda node: lease.owned_by(node.metadata.uid if node is not None else ""))
    link.bind(manager, api_node, pods.admission)
    subject = Subject(node_name=node_name, dns_names=(node_name,), addresses=node.reporter.ips)
    return Cluster(
        clock=clock,
        health=sources.health,
        link=link,
        node=api_node,
        pods=api_pods,
        lease=lease,
        statuses=statuses,
        mirrors=mirrors,
        taints=taints,
        server_rotation=server_rotation(config, client, subject, clock),
        events=EventReporter(
            client.lane(TokenBucket(clock, settings.event_qps, settings.event_burst).take),
            partial(node.events.watch_events, since=clock.now()),
            clock=clock,
            busy_at=lambda: statuses.reported_at,
        ),
        pod_reflector=Reflector(
            client, PODS, Pod, api_pods, clock=clock, field_selector=f"spec.nodeName={node_name}"
        ),
        node_reflector=Reflector(
            client, NODES, Node, api_node, clock=clock, field_selector=f"metadata.name={node_name}"
        ),
    )
