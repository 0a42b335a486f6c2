"""Prometheus metrics with the kubelet's names, made from `MetricsView` when they are asked for.

Nothing is counted here: the agent counts where things happen, and a scrape renders one view of it, so that
an agent nobody scrapes pays nothing. prometheus-client is imported with the first scrape.

kubelet_runtime_operations_* carry one more label than the kubelet's: ``runtime``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubeletx import __version__

from .views import ClaimView, CountView, HistogramView, MetricsView, OperationView

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

_COUNTERS: Final = {
    "kubelet_started_pods_total": "Sandboxes that were asked for.",
    "kubelet_started_pods_errors_total": "Sandboxes that could not be made.",
    "kubelet_orphaned_runtime_pods_total": "Pods found on a runtime without a binding.",
    "kubelet_certificate_manager_client_ttl_seconds": "How long the client certificate is good; +Inf without one.",
    "kubelet_certificate_manager_client_expiration_renew_errors": "Failed renewals of the client certificate.",
    "kubelet_certificate_manager_server_ttl_seconds": "How long the serving certificate is good; +Inf without one.",
    "kubelet_server_expiration_renew_errors": "Failed renewals of the serving certificate.",
}
_LABELLED: Final = {
    "kubelet_started_containers": (("container_type",), "Containers that were asked for."),
    "kubelet_started_containers_errors": (
        ("container_type", "code"),
        "Containers that could not be made or started.",
    ),
    "kubelet_terminated_containers": (("container_type", "exit_code", "reason"), "Containers that ended."),
    "kubelet_restarted_pods": (
        ("static",),
        "Pods that took the place of one of the same name after a change.",
    ),
    "kubelet_admission_rejections": (("reason",), "Pods rejected at admission."),
    "kubelet_preemptions": (("preemption_signal",), "Pods that made way for a critical one."),
    "kubelet_websocket_streaming_requests": (("subresource",), "Streams by WebSocket that end at the node."),
}
_CLAIMS: Final = {
    "capacity_bytes": "Size of the file system behind a claim.",
    "available_bytes": "What is left of it.",
    "used_bytes": "What is used of it.",
    "inodes": "Its inodes.",
    "inodes_free": "Those that are free.",
    "inodes_used": "Those that are used.",
}
_DURATIONS: Final = {
    "kubelet_pod_start_duration_seconds": "From the first sight of a pod to its running.",
    "kubelet_pod_worker_duration_seconds": "One turn of a pod worker.",
    "kubelet_pod_worker_start_duration_seconds": "From the first sight of a pod to its worker's start.",
    "kubelet_pleg_relist_duration_seconds": "One relist of a runtime.",
    "kubelet_pleg_relist_interval_seconds": "Time between two relists.",
    "kubelet_image_pull_duration_seconds": "One image pull.",
    "kubelet_certificate_manager_server_rotation_seconds": "Life of a serving certificate until it was renewed.",
}


def render(view: MetricsView) -> bytes:
    """The text exposition of one view, with the process's own figures."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(view))
    return generate_latest(registry) + generate_latest(_process_registry())


@functools.cache
def _process_registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return registry


class _Once:
    """A collector of one view."""

    def __init__(self, view: MetricsView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Metric families of the view."""
        yield from _gauges(self._view)
        yield from _operations(self._view.operations)
        yield from _counted(self._view)
        yield from _labelled(self._view.counts)
        yield from _claims(self._view.claims)
        yield from _providers(self._view)


def _gauges(view: MetricsView) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    node = GaugeMetricFamily("kubelet_node_name", "The node's name.", labels=["node"])
    node.add_metric([view.node_name], 1)
    yield node
    build = GaugeMetricFamily("kubeletx_build_info", "Version of the agent.", labels=["version"])
    build.add_metric([__version__], 1)
    yield build
    yield GaugeMetricFamily("kubelet_running_pods", "Pods with a running sandbox.", value=view.running_pods)
    containers = GaugeMetricFamily(
        "kubelet_running_containers", "Containers by state.", labels=["container_state"]
    )
    for state, number in sorted(view.running_containers.items()):
        containers.add_metric([state], number)
    yield containers
    desired = GaugeMetricFamily("kubelet_desired_pods", "Pods that sources want.", labels=["static"])
    for label, number in sorted(view.desired_pods.items()):
        desired.add_metric([label], number)
    yield desired
    ready = GaugeMetricFamily("kubeletx_runtime_ready", "Whether the runtime is ready.", labels=["runtime"])
    for name, ok in view.runtimes_ready.items():
        ready.add_metric([name], int(ok))
    yield ready
    bound = GaugeMetricFamily("kubeletx_runtime_pods", "Pods bound to the runtime.", labels=["runtime"])
    for name, number in view.pods_by_runtime.items():
        bound.add_metric([name], number)
    yield bound


def _operations(operations: tuple[OperationView, ...]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    labels = ["operation_type", "runtime"]
    total = CounterMetricFamily("kubelet_runtime_operations", "Calls to runtimes.", labels=labels)
    errors = CounterMetricFamily("kubelet_runtime_operations_errors", "Calls that failed.", labels=labels)
    durations = HistogramMetricFamily(
        "kubelet_runtime_operations_duration_seconds", "Duration of calls.", labels=labels
    )
    for row in operations:
        values = [row.operation, row.runtime]
        total.add_metric(values, row.calls)
        errors.add_metric(values, row.errors)
        if row.durations is not None:
            durations.add_metric(values, _buckets(row.durations), row.durations.sum_seconds)
    yield total
    yield errors
    yield durations


def _providers(view: MetricsView) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if not view.provider_digest:
        return
    info = GaugeMetricFamily(
        "kubelet_credential_provider_config_info", "The credential providers' configuration.", labels=["hash"]
    )
    info.add_metric([view.provider_digest], 1)
    yield info
    labels = ["plugin_name"]
    errors = CounterMetricFamily(
        "kubelet_credential_provider_plugin_errors", "Runs of a provider that failed.", labels=labels
    )
    durations = HistogramMetricFamily(
        "kubelet_credential_provider_plugin_duration", "Seconds of a provider's run.", labels=labels
    )
    for one in view.providers:
        errors.add_metric([one.name], one.errors)
        durations.add_metric([one.name], _buckets(one.durations), one.durations.sum_seconds)
    yield errors
    yield durations


def _labelled(counts: tuple[CountView, ...]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, (labels, text) in _LABELLED.items():
        family = CounterMetricFamily(name, text, labels=labels)
        for one in counts:
            if one.name == name:
                family.add_metric([one.labels[label] for label in labels], one.value)
        yield family


def _claims(claims: tuple[ClaimView, ...]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for field, text in _CLAIMS.items():
        labels = ["namespace", "persistentvolumeclaim"]
        family = GaugeMetricFamily(f"kubelet_volume_stats_{field}", text, labels=labels)
        for one in claims:
            family.add_metric([one.namespace, one.claim], getattr(one, field))
        yield family


def _counted(view: MetricsView) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for name, value in sorted(view.counters.items()):
        text = _COUNTERS.get(name, name)
        if name.endswith("_total"):
            yield CounterMetricFamily(name.removesuffix("_total"), text, value=value)
        else:
            yield GaugeMetricFamily(name, text, value=value)
    for name, histogram in sorted(view.durations.items()):
        family = HistogramMetricFamily(name, _DURATIONS.get(name, name))
        family.add_metric([], _buckets(histogram), histogram.sum_seconds)
        yield family


def _buckets(histogram: HistogramView) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as the text format has them."""
    total, rows = 0.0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        rows.append((bound, total))
    return rows
