"""Component of the agent: the node itself, with its name, capacity, conditions and events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

import kubeletx
from kubeletx.api import Endpoint, ObjectRef
from kubeletx.api.names import Event
from kubeletx.node.condition_table import METADATA as CONDITION_TABLES
from kubeletx.node.condition_table import ConditionTimes
from kubeletx.node.event_table import METADATA as EVENT_TABLES
from kubeletx.node.events import EventRecorder
from kubeletx.node.status import NodeReporter
from kubeletx.pods import NodeContext

from ..config.ports import listens
from ..host.guard import OwnResources, check, collisions
from ..host.pod_cgroups import check_cgroup_version, check_swap, may_make_cgroups
from .part import Part, PartContext
from .settings import node_context, node_plan

log = structlog.get_logger(__name__)


class NodeAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The node's status and events, from `make_node`.

    `reporter`: computes the node's status. `events`: records events. `ref`: reference to the Node, for its events.
    `context`: data of the node that the specs of sandboxes and containers need.
    """

    reporter: NodeReporter
    events: EventRecorder
    ref: ObjectRef
    context: NodeContext


def make_node(ctx: PartContext, endpoints: Sequence[Endpoint]) -> NodeAssembly:
    """Read the node's capacity and addresses, and build its `NodeReporter` and `EventRecorder`.

    `endpoints`: the configured runtimes. Raises InvalidConfig if the agent would share a runtime, a directory, the
    cgroup root or a port with a kubelet.
    """
    reporter = NodeReporter(node_plan(ctx.config), clock=ctx.clock)
    reporter.load()
    _guard(ctx, endpoints)
    events = EventRecorder(clock=ctx.clock, node_name=reporter.name, store=ctx.store)
    ref = ObjectRef(kind="Node", name=reporter.name, uid=reporter.name)
    version = ctx.host.trees.version

    async def load() -> None:
        await reporter.remember(ConditionTimes(ctx.store))
        await events.load()
        text = f"Starting kubeletx {kubeletx.__version__}"
        events.record(ref, type="Normal", reason=Event.STARTING, message=text)
        check_cgroup_version(ctx.config.cgroups, version, events, ref)
        check_swap(ctx.config, version, is_on=ctx.host.has_swap)

    ctx.made.add(Part(name="node", tables=(EVENT_TABLES, CONDITION_TABLES), load=load, close=(events.flush,)))
    return NodeAssembly(
        reporter=reporter,
        events=events,
        ref=ref,
        context=node_context(ctx.config, ctx.agent_id, reporter, ctx.host),
    )


def _guard(ctx: PartContext, endpoints: Sequence[Endpoint]) -> None:
    config = ctx.config
    ours = OwnResources(
        root_dir=config.root_dir,
        logs_dir=config.logs.pod_logs_dir,
        cgroup_root=config.cgroups.root if may_make_cgroups(config.cgroups, ctx.host.trees) else None,
        sockets=tuple(endpoint.url for endpoint in endpoints),
        ports=listens(config),
    )
    overlaps = collisions(ours, ctx.host.kubelets, ctx.host.is_port_free)
    for problem in check(overlaps, share_runtime=config.runtimes.share_runtime):
        log.warning("Sharing a runtime with a kubelet", err=problem)
