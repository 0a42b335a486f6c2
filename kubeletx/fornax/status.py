"""The node under its cores, for ``kubeletx fornaxcore status`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletx.api.counting import Metric, counter, gauge

from .link import Link
from .node_actor import NodeActor
from .views import FornaxStatus, LinkStatus


def node_status(actor: NodeActor, repaired: Mapping[str, int] | None = None) -> FornaxStatus:
    """Return the present status; the cores are in order of connecting. `repaired`: see `FornaxStatus`."""
    return FornaxStatus(
        identifier=actor.identity.identifier,
        state=actor.machine.state.value,
        ready=actor.is_ready,
        revision=actor.revisions.current,
        cores=tuple(_link_status(actor, link) for link in actor.links.values()),
        repaired=dict(repaired or {}),
    )


def _link_status(actor: NodeActor, link: Link) -> LinkStatus:
    address, counts = link.core.address, actor.counts
    sent = {kind: count for (to, kind), count in counts.sent.items() if to == address}
    return LinkStatus(
        address=address,
        identifier=link.core.identifier,
        role=link.core.role.value,
        connected=link.is_connected,
        registered=link.outbox.is_registered,
        since=link.since,
        acknowledged=link.outbox.acknowledged,
        queue=len(link.outbox),
        full_at=link.full_at,
        sent=sum(sent.values()),
        full_states=sent.get("NODE_STATE", 0) + sent.get("NODE_READY", 0),
        received=counts.received[address],
        refused=counts.refused[address],
        failures=counts.failures[address],
        overflows=link.outbox.overflows,
        problem=link.problem,
    )


def metrics(actor: NodeActor, repaired: Mapping[str, int], failed: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics of the links and of the reconciler, see `Reconciler`."""
    counts, links = actor.counts, actor.links
    yield gauge(
        "kubeletx_fornaxcore_revision",
        "Number of the node's last change.",
        lambda: actor.revisions.current,
    )
    yield gauge(
        "kubeletx_fornaxcore_connected",
        "1: the FornaxCore answers.",
        lambda: [((core,), int(link.is_connected)) for core, link in links.items()],
        "core",
    )
    yield gauge(
        "kubeletx_fornaxcore_acknowledged_revision",
        "Revision of the last message that the FornaxCore answered.",
        lambda: [((core,), link.outbox.acknowledged) for core, link in links.items()],
        "core",
    )
    yield gauge(
        "kubeletx_fornaxcore_queue",
        "Changes that wait to be sent to the FornaxCore.",
        lambda: [((core,), len(link.outbox)) for core, link in links.items()],
        "core",
    )
    yield counter(
        "kubeletx_fornaxcore_sent_total",
        "Messages that the FornaxCore answered, by type; NODE_STATE and NODE_READY are full states.",
        counts.sent,
        "core",
        "type",
    )
    for name, text, found in (
        ("repaired_total", "Objects that did not agree with others and were repaired, by repair.", repaired),
        ("repair_failures_total", "Rounds in which the repair failed.", failed),
    ):
        yield counter(f"kubeletx_fornaxcore_{name}", text, found, "repair")
    for name, text, source in (
        ("received_total", "Messages of the FornaxCore.", counts.received),
        ("refused_total", "Messages of the FornaxCore that were not carried out.", counts.refused),
        ("failures_total", "Messages that the FornaxCore did not get or refused.", counts.failures),
        ("connections_total", "Connections to the FornaxCore.", counts.connects),
    ):
        yield counter(f"kubeletx_fornaxcore_{name}", text, source, "core")
