"""Renders ``/metrics/probes`` and ``/metrics/slis``.

Source: kubelet, prober/prober_manager.go; component-base, metrics/slis.
"""

from __future__ import annotations

from ..views import HealthView, ProbeCount, ProbeDuration
from .exposition import Family, labels_of, render


def probe_metrics(counts: tuple[ProbeCount, ...], durations: tuple[ProbeDuration, ...] = ()) -> bytes:
    """Render the numbers of probe results and the durations of probes since the agent started.

    Only pods that still exist are included.
    """
    family = Family(
        "prober_probe_total",
        "counter",
        "Cumulative number of a liveness, readiness or startup probe for a container by result.",
    )
    for one in counts:
        labels = {
            "container": one.container,
            "namespace": one.namespace,
            "pod": one.pod,
            "pod_uid": one.uid,
            "probe_type": one.probe,
            "result": one.result,
        }
        family.add(labels_of(labels), one.count)
    took = Family("prober_probe_duration_seconds", "histogram", "Duration in seconds for a probe response.")
    for row in durations:
        named = {
            "container": row.container,
            "namespace": row.namespace,
            "pod": row.pod,
            "probe_type": row.probe,
        }
        took.add_histogram(named, row.histogram.bounds, row.histogram.counts, row.histogram.sum_seconds)
    return render([family, took])


def sli_metrics(health: HealthView) -> bytes:
    """Render the health of each part of the agent as a ``kubernetes_healthcheck`` sample: 1 if healthy, else 0."""
    family = Family("kubernetes_healthcheck", "gauge", "Result of the health checks.")
    family.add(labels_of({"name": "ping", "type": "healthz"}), 1)
    for part in health.parts:
        family.add(labels_of({"name": part.name, "type": "healthz"}), int(part.ok))
    return render([family])
