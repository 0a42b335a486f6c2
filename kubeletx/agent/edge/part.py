"""Component of the agent: its side of the guardian of an edge node, with ``--health-run-dir``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from kubeletx.node.shutdown import groups_of

from ..parts.part import Part, PartContext, Task
from ..parts.plugin_services import PluginsAssembly
from ..parts.pods import PodsAssembly
from ..parts.shutdown import Shutdowns
from ..parts.views import ViewsAssembly

if TYPE_CHECKING:
    from kubeletx.health.topics import HealthStatus, KubeletxStatus

    from ..cluster.member import Cluster
    from .report import ControllerContact

GRACE_SECONDS = 300.0
"""Longest time in which the guardian waits for the end of pods; used without a configured grace period."""
CRITICAL_GRACE_SECONDS = 30.0


def make_health(
    ctx: PartContext,
    plugins: PluginsAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    cluster: Cluster | None,
    shutdowns: Shutdowns,
    fornaxcore: Callable[[], msgspec.Struct],
) -> None:
    """Build the tasks that exchange topics with the guardian, and that end the pods before it reboots the node.

    Without ``--health-run-dir`` there are none, and the room `kubeletx.health` is not imported.
    """
    run = ctx.config.edge.run_dir
    if run is None:
        return
    from kubeletx.health.topics import KubeletxStatus

    from .conditions import edge_conditions
    from .guardian import EdgeAgent, GuardianLock
    from .report import MAX_PODS, best, pods_not_ready, topic_check

    lock, active = GuardianLock(), pods.services.active

    def status() -> KubeletxStatus:
        contact = best(_contacts(ctx, cluster, fornaxcore))
        known = ((str(w.desired.ref), w.facts.previous_status) for w in active.workers.values())
        has_ended = lock.is_released and all(map(active.has_stopped, active.workers))
        return KubeletxStatus(
            contact=contact.reach,
            contact_source=contact.source,
            runtimes_not_ready=tuple(facts.name for facts in views.node.reports() if not facts.is_ready),
            pods_not_ready=tuple(islice(pods_not_ready(known), MAX_PODS)),
            is_ending=lock.is_ending,
            all_pods_ended=lock.is_ending and has_ended,
            checks=tuple(map(topic_check, plugins.checks)),
        )

    def on_health(health: HealthStatus | None) -> None:
        views.node.others_changed(edge_conditions(health))

    agent = EdgeAgent(run, clock=ctx.clock, lock=lock, status=status, on_health=on_health)
    views.node.others_changed(edge_conditions(None))
    shutdowns.watch("guardian", lock, shutdowns.groups or groups_of(GRACE_SECONDS, CRITICAL_GRACE_SECONDS))
    ctx.made.add(
        Part(
            name="edge",
            recovered=agent.look,
            tasks=(Task(name="edge", run=agent.run),),
            close=(agent.close,),
        )
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
