"""Component of the agent: its side of the guardian of an edge node, with ``--health-run-dir``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import NotFound
from kubeletx.api.names import Event
from kubeletx.kube.types.node import NodeCondition
from kubeletx.pods.model.sources import API

from ..parts.node import NodeAssembly
from ..parts.part import Part, PartContext, Task
from ..parts.plugin_services import PluginsAssembly
from ..parts.pods import PodsAssembly
from ..parts.shutdown import AnnouncedShutdown, Shutdowns
from ..parts.views import ViewsAssembly

if TYPE_CHECKING:
    from kubeletx.health.topics import HealthStatus, KubeletxStatus
    from kubeletx.kube.types.core import Pod

    from ..cluster.member import Cluster
    from .drain import NodeDrainer
    from .report import ControllerContact


def make_health(
    ctx: PartContext,
    node: NodeAssembly,
    plugins: PluginsAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    cluster: Cluster | None,
    shutdowns: Shutdowns,
    fornaxcore: Callable[[], msgspec.Struct],
) -> Callable[[], msgspec.Struct]:
    """Build the tasks that exchange topics with the guardian, and that end the pods before it reboots the node.

    Returns a function that returns an `EdgeView`. Without ``--health-run-dir`` there are no tasks, the room
    `kubeletx.health` is not imported, and the function raises NotFound.
    """
    run = ctx.config.edge.run_dir
    if run is None:
        return _no_guardian
    from kubeletx.health.topics import KubeletxStatus, NodeDrainStatus

    from .conditions import edge_conditions, metrics
    from .guardian import EdgeAgent
    from .report import MAX_PODS, best, pods_by_readiness, topic_check

    lock, active = AnnouncedShutdown(), pods.services.active
    drainer = _drainer(ctx, node, cluster, pods)
    shown = edge_conditions(None)
    last: HealthStatus | None = None

    def status() -> KubeletxStatus:
        contact = best(_contacts(ctx, cluster, fornaxcore))
        known = ((str(w.desired.ref), w.facts.previous_status) for w in active.workers.values())
        ready, not_ready = pods_by_readiness(known, MAX_PODS)
        return KubeletxStatus(
            contact=contact.reach,
            contact_source=contact.source,
            runtimes_not_ready=tuple(facts.name for facts in views.node.reports() if not facts.is_ready),
            pods_not_ready=not_ready,
            pods_ready=ready,
            is_ending=lock.is_ending,
            all_pods_ended=lock.is_ending and lock.is_released and not shutdowns.left(),
            checks=tuple(map(topic_check, plugins.checks)),
            drain=drainer.status if drainer is not None else NodeDrainStatus(),
        )

    def on_health(health: HealthStatus | None, silence: str) -> None:
        nonlocal shown, last
        before, shown, last = shown, edge_conditions(health, silence), health
        for old, new in zip(before, shown, strict=True):
            if old.status not in (new.status, "Unknown"):
                _record(node, new)
        views.node.others_changed(shown)
        if drainer is not None and health is not None:
            drainer.request(health.drain_request)

    agent = EdgeAgent(run, clock=ctx.clock, lock=lock, status=status, on_health=on_health)
    views.node.others_changed(shown)
    shutdowns.watch("guardian", lock)
    ctx.made.add(
        Part(
            name="edge",
            early=(Task(name="edge", run=agent.run),),
            recovered=agent.look,
            feeds=(Task(name="node-drain", run=drainer.run),) if drainer is not None else (),
            close=(agent.close,),
            metrics=metrics(lambda: last),
        )
    )
    return agent.view


def _no_guardian() -> msgspec.Struct:
    raise NotFound("the agent has no guardian; start it with --health-run-dir")


def _record(node: NodeAssembly, condition: NodeCondition) -> None:
    is_bad = (condition.type.endswith("Healthy")) == (condition.status == "False")
    words = (condition.type, "is now", condition.status, f"({condition.reason})", condition.message or "")
    node.events.record(
        node.ref,
        type="Warning" if is_bad else "Normal",
        reason=Event.EDGE_HEALTH_CHANGED,
        message=" ".join(filter(None, words)),
    )


def _drainer(
    ctx: PartContext, node: NodeAssembly, cluster: Cluster | None, pods: PodsAssembly
) -> NodeDrainer | None:
    """Return the object that drains the Node; None without a cluster."""
    if cluster is None:
        return None
    from .drain import NodeDrainer

    active, link = pods.services.active, cluster.link

    def api_pods() -> list[Pod]:
        workers = active.workers.items()
        return [
            w.desired.pod for uid, w in workers if w.desired.source == API and not active.has_stopped(uid)
        ]

    return NodeDrainer(
        link.client, node.reporter.name, clock=ctx.clock, pods=api_pods, lister=link.taint_client
    )


def _contacts(
    ctx: PartContext, cluster: Cluster | None, fornaxcore: Callable[[], msgspec.Struct]
) -> list[ControllerContact]:
    from .report import api_contact, core_contact

    contacts = []
    if cluster is not None:
        client = cluster.link.client
        contacts.append(
            api_contact(
                client.access.server,
                silent_seconds=client.reach.silent_seconds,
                problem=client.problem,
                refusal=cluster.lease.problem,
                fresh=ctx.config.cluster.lease_seconds,
            )
        )
    if ctx.config.fornax.cores:
        from kubeletx.fornax.views import FornaxStatus

        status = fornaxcore()
        assert isinstance(status, FornaxStatus)
        contacts += [core_contact(core.address, is_connected=core.connected) for core in status.cores]
    return contacts
