"""The watch for a shutdown of the host as a part of the agent: whom it tells."""

from __future__ import annotations

from kubeletx.api import Blocking, Clock, EventSink, ObjectRef
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.node.logind import Logind
from kubeletx.node.shutdown import groups_of
from kubeletx.pods.active_pods import ActivePods
from kubeletx.pods.admission import Door
from kubeletx.pods.eviction.host_shutdown import HostShutdown

from ..backend.node import NodeBackend
from ..config.tree import AgentConfig

SHUTTING_DOWN = "node is shutting down"


def make_shutdown(
    config: AgentConfig,
    *,
    pods: ActivePods,
    door: Door,
    node: NodeBackend,
    node_ref: ObjectRef,
    statuses: StatusReporter | None,
    clock: Clock,
    blocking: Blocking,
    events: EventSink,
) -> HostShutdown:
    """The watch; admission and the node's Ready condition hear of it. `statuses` None: there is no API server."""
    settings = config.shutdown

    def on_change(is_going: bool) -> None:
        door.is_shutting_down = is_going
        node.problems_changed(*([SHUTTING_DOWN] if is_going else []))

    def has_told() -> bool:
        return statuses is None or statuses.is_idle

    return HostShutdown(
        Logind(blocking),
        groups_of(settings.grace_seconds, settings.critical_grace_seconds, settings.by_priority),
        pods=pods,
        clock=clock,
        events=events,
        node=node_ref,
        on_change=on_change,
        has_told=has_told,
    )
