"""Renders ``/metrics`` from a `MetricsView`, in Prometheus' text format.

Nothing is counted here: each part of the agent counts its own events, and a scrape renders one view of the counts.
`table` has the list of series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletx import __version__

from ..views import HistogramView, MetricsView
from .exposition import labels_of, number
from .exposition import render as render_families
from .process import process_metrics
from .table import METRICS

_CLAIM_FIELDS = ("capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used")

Sample = tuple[str, Mapping[str, str], float | HistogramView]
"""Metric name, labels, value."""


def render(view: MetricsView) -> bytes:
    """Render one view as Prometheus text, followed by the ``process_*`` metrics of the agent's own process."""
    found: dict[str, list[tuple[Mapping[str, str], float | HistogramView]]] = {}
    for name, labels, value in _samples(view):
        found.setdefault(name, []).append((labels, value))
    text = "".join(_family(name, found[name]) for name in METRICS if name in found)
    return text.encode() + render_families(process_metrics())


def _family(name: str, samples: list[tuple[Mapping[str, str], float | HistogramView]]) -> str:
    metric = METRICS[name]
    lines = [f"# HELP {name} {metric.text}\n# TYPE {name} {metric.kind}\n"]
    for labels, value in samples:
        sorted_labels = dict(sorted(labels.items()))
        if isinstance(value, HistogramView):
            lines += _histogram(name, sorted_labels, value)
        else:
            lines.append(f"{name}{labels_of(sorted_labels)} {number(float(value))}\n")
    return "".join(lines)


def _histogram(name: str, labels: dict[str, str], histogram: HistogramView) -> Iterator[str]:
    """Yield the lines of a histogram: cumulative counts by upper bound, then count and sum."""
    total = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        yield f"{name}_bucket{labels_of({'le': bound, **labels})} {float(total)}\n"
    text = labels_of(labels)
    yield f"{name}_count{text} {float(total)}\n{name}_sum{text} {number(histogram.sum_seconds)}\n"


def _samples(view: MetricsView) -> Iterator[Sample]:
    yield "kubelet_node_name", {"node": view.node_name}, 1
    yield "kubeletx_build_info", {"version": __version__}, 1
    yield "kubelet_running_pods", {}, view.running_pods
    for state, count in sorted(view.running_containers.items()):
        yield "kubelet_running_containers", {"container_state": state}, count
    for label, count in sorted(view.desired_pods.items()):
        yield "kubelet_desired_pods", {"static": label}, count
    for runtime, is_ready in view.runtimes_ready.items():
        yield "kubeletx_runtime_ready", {"runtime": runtime}, is_ready
    for runtime, count in view.abandoned_calls.items():
        yield "kubeletx_runtime_abandoned_calls", {"runtime": runtime}, count
    for runtime, count in view.pods_by_runtime.items():
        yield "kubeletx_runtime_pods", {"runtime": runtime}, count
    yield from _operations(view)
    for name, value in view.counters.items():
        yield name, {}, value
    for name, histogram in view.durations.items():
        yield name, {}, histogram
    for one in view.counts:
        yield one.name, one.labels, one.value
    for row in view.labelled_durations:
        yield row.name, row.labels, row.histogram
    yield from _claims(view)
    yield from _providers(view)


def _operations(view: MetricsView) -> Iterator[Sample]:
    for row in view.operations:
        labels = {"operation_type": row.operation, "runtime": row.runtime}
        yield "kubelet_runtime_operations_total", labels, row.calls
        yield "kubelet_runtime_operations_errors_total", labels, row.errors
        if row.durations is not None:
            yield "kubelet_runtime_operations_duration_seconds", labels, row.durations


def _claims(view: MetricsView) -> Iterator[Sample]:
    for one in view.claims:
        labels = {"namespace": one.namespace, "persistentvolumeclaim": one.claim}
        for field in _CLAIM_FIELDS:
            yield f"kubelet_volume_stats_{field}", labels, getattr(one, field)


def _providers(view: MetricsView) -> Iterator[Sample]:
    if not view.provider_digest:
        return
    yield "kubelet_credential_provider_config_info", {"hash": view.provider_digest}, 1
    for one in view.providers:
        labels = {"plugin_name": one.name}
        yield "kubelet_credential_provider_plugin_errors_total", labels, one.errors
        yield "kubelet_credential_provider_plugin_duration", labels, one.durations
