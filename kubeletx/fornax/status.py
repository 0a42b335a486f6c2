"""The node under its cores, for ``kubeletx fornaxcore status`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from kubeletx.api.counting import Metric, counter, gauge

from .node_actor import NodeActor
from .views import FornaxStatus

_OF_LINKS = (
    (gauge, "connected", "connected", "1: the FornaxCore answers."),
    (
        gauge,
        "acknowledged_revision",
        "acknowledged",
        "Revision of the last message that the FornaxCore answered.",
    ),
    (gauge, "queue", "queue", "Changes that wait to be sent to the FornaxCore."),
    (counter, "received_total", "received", "Messages of the FornaxCore."),
    (counter, "refused_total", "refused", "Messages of the FornaxCore that were not carried out."),
    (counter, "failures_total", "failures", "Messages that the FornaxCore did not answer or refused."),
    (counter, "connections_total", "connects", "Connections to the FornaxCore."),
)
"""Kind and name of a metric of each link, its field of `LinkStatus`, and its help."""


def node_status(actor: NodeActor, repaired: Mapping[str, int] | None = None) -> FornaxStatus:
    """Return the present status; the cores are in order of connecting. `repaired`: see `FornaxStatus`."""
    return FornaxStatus(
        identifier=actor.identity.identifier,
        state=actor.machine.state.value,
        ready=actor.is_ready,
        revision=actor.revisions.current,
        cores=tuple(link.status() for link in actor.links.values()),
        repaired=dict(repaired or {}),
    )


def metrics(actor: NodeActor, repaired: Mapping[str, int], failed: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics of the links and of the reconciler, see `Reconciler`."""

    def of_links(field: str) -> list[tuple[tuple[str], int]]:
        return [((core,), int(getattr(link.status(), field))) for core, link in actor.links.items()]

    def sent() -> list[tuple[tuple[str, str], int]]:
        return [
            ((core, kind), count)
            for core, link in actor.links.items()
            for kind, count in link.status().sent.items()
        ]

    text = "Number of the node's last change."
    yield gauge("kubeletx_fornaxcore_revision", text, lambda: actor.revisions.current)
    for make, name, field, text in _OF_LINKS:
        yield make(f"kubeletx_fornaxcore_{name}", text, partial(of_links, field), "core")
    text = "Messages that the FornaxCore answered, by type; NODE_STATE and NODE_READY are full states."
    yield counter("kubeletx_fornaxcore_sent_total", text, sent, "core", "type")
    text = "Objects that did not agree with others and were repaired, by repair."
    yield counter("kubeletx_fornaxcore_repaired_total", text, repaired, "repair")
    text = "Rounds in which the repair failed."
    yield counter("kubeletx_fornaxcore_repair_failures_total", text, failed, "repair")
