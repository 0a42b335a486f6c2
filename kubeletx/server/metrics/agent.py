"""Renders ``/metrics``, ``/metrics/probes`` and ``/metrics/slis`` in Prometheus' text format.

Nothing is counted here: each object of the agent counts its own events and describes its numbers (`Metric`).
Names, labels and kinds of series that a kubelet has too are the kubelet's; only kubelet_runtime_operations_* have one
more label, ``runtime``. Source: kubelet, pkg/kubelet/metrics, prober/prober_manager.go; component-base,
metrics/prometheus/restclient, metrics/slis, version; pkg/volume/util.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api.counting import Metric
from kubeletx.kube.text.exposition import Family, family_of, labels_of
from kubeletx.kube.text.exposition import render as render_families

from ..views import HealthView
from .process import process_metrics

_OF_PROBES = "prober_"


def render(metrics: Iterable[Metric]) -> bytes:
    """Render all metrics except probe metrics, then the ``process_*`` metrics of the agent's own process."""
    families = (family_of(metric, float) for metric in metrics if not metric.name.startswith(_OF_PROBES))
    return render_families(families) + render_families(process_metrics())


def render_probes(metrics: Iterable[Metric]) -> bytes:
    """Render the numbers of probe results and the durations of probes, of pods that still exist."""
    return render_families(family_of(metric, int) for metric in metrics if metric.name.startswith(_OF_PROBES))


def sli_metrics(health: HealthView) -> bytes:
    """Render the health of each part of the agent as a ``kubernetes_healthcheck`` sample: 1 if healthy, else 0."""
    family = Family("kubernetes_healthcheck", "gauge", "Result of the health checks.")
    family.add(labels_of({"name": "ping", "type": "healthz"}), 1)
    for part in health.parts:
        family.add(labels_of({"name": part.name, "type": "healthz"}), int(part.ok))
    return render_families([family])
