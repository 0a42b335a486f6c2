"""Renders ``/metrics/resource``, which metrics-server reads for ``kubectl top`` and autoscalers.

Names, labels and stability are the kubelet's. metrics-server computes usage from two samples with their times, and
drops a whole pod if a value of one of its containers is zero. So a pod that was not measured completely is left out,
instead of showing zeros. While a runtime does not answer, its pods are missing and ``resource_scrape_error`` is 1.
Source: kubelet, pkg/kubelet/metrics/collectors/resource_metrics.go; metrics-server,
pkg/scraper/client/resource/decode.go.
"""

from __future__ import annotations

from kubeletx.api import UnitStats
from kubeletx.kube.text.exposition import Family, labels_of, render

from .figures import Figures, PodFigures, UnitFigures

_ALPHA, _STABLE = "[ALPHA] ", "[STABLE] "


def resource_metrics(figures: Figures) -> bytes:
    """Render the measurements of the node and of completely measured pods as Prometheus text."""
    table = _Table()
    table.add_node(figures)
    for pod in figures.pods:
        if is_complete(pod):
            table.add_pod(pod)
    for error in (table.error, table.old_error):
        error.add("", int(bool(figures.missing)))
    return render(table.families)


def is_complete(pod: PodFigures) -> bool:
    """Return True if the pod has running units and each has a CPU and a memory value other than zero."""
    return (
        pod.is_whole
        and bool(pod.units)
        and all(unit.stats.cpu_usage_core_ns and memory_of(unit.stats) for unit in pod.units)
    )


def memory_of(stats: UnitStats) -> int | None:
    """Return the working set in bytes; if the runtime does not report it, all used memory. None: both are unknown."""
    working_set = stats.memory_working_set_bytes
    return stats.memory_usage_bytes if working_set is None else working_set


def swap_of(unit: UnitFigures) -> int | None:
    """Return the swap usage in bytes: the runtime's value, or else the cgroup's; None if unknown."""
    swap = unit.stats.swap_usage_bytes
    return unit.cgroup.swap_bytes if swap is None else swap


class _Table:
    def __init__(self) -> None:
        def counter(name: str, text: str, level: str = _STABLE) -> Family:
            return Family(name, "counter", level + text)

        def gauge(name: str, text: str, level: str = _STABLE) -> Family:
            return Family(name, "gauge", level + text)

        self.container_cpu = counter(
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the container in core-seconds",
        )
        self.container_memory = gauge(
            "container_memory_working_set_bytes", "Current working set of the container in bytes"
        )
        self.container_start = gauge(
            "container_start_time_seconds", "Start time of the container since unix epoch in seconds"
        )
        self.container_swap = gauge(
            "container_swap_usage_bytes", "Current amount of the container swap usage in bytes", _ALPHA
        )
        self.node_cpu = counter(
            "node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds"
        )
        self.node_memory = gauge("node_memory_working_set_bytes", "Current working set of the node in bytes")
        self.node_swap = gauge("node_swap_usage_bytes", "Current swap usage of the node in bytes", _ALPHA)
        self.pod_cpu = counter(
            "pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds"
        )
        self.pod_memory = gauge("pod_memory_working_set_bytes", "Current working set of the pod in bytes")
        self.pod_swap = gauge("pod_swap_usage_bytes", "Current amount of the pod swap usage in bytes", _ALPHA)
        self.container_swap_limit = gauge(
            "container_swap_limit_bytes", "Limit of the container's swap in bytes", _ALPHA
        )
        text = "1 if there was an error while getting container metrics, 0 otherwise"
        self.error = gauge("resource_scrape_error", text)
        self.old_error = gauge("scrape_error", text, _ALPHA)

    @property
    def families(self) -> list[Family]:
        return list(vars(self).values())

    def add_node(self, figures: Figures) -> None:
        host = figures.host
        at_ms = host.at_ns // 1_000_000
        self.node_cpu.add("", host.cpu_core_ns / 1e9, at_ms)
        self.node_memory.add("", host.memory_working_set_bytes, at_ms)
        self.node_swap.add("", host.swap_usage_bytes, at_ms)

    def add_pod(self, pod: PodFigures) -> None:
        cpu = memory = swap = at_ms = 0
        for unit in pod.units:
            stats = unit.stats
            labels = labels_of({"container": unit.name, "namespace": pod.namespace, "pod": pod.name})
            at_ms = stats.at_ns // 1_000_000
            used, held = stats.cpu_usage_core_ns or 0, memory_of(stats) or 0
            self.container_cpu.add(labels, used / 1e9, at_ms)
            self.container_memory.add(labels, held, at_ms)
            self.container_start.add(labels, unit.started_at)
            swapped = swap_of(unit)
            self.container_swap.add(labels, swapped, at_ms)
            self.container_swap_limit.add(labels, unit.cgroup.spec.swap_limit_bytes, at_ms)
            cpu, memory, swap = cpu + used, memory + held, swap + (swapped or 0)
        labels = labels_of({"namespace": pod.namespace, "pod": pod.name})
        self.pod_cpu.add(labels, cpu / 1e9, at_ms)
        self.pod_memory.add(labels, memory, at_ms)
        if any(swap_of(unit) is not None for unit in pod.units):
            self.pod_swap.add(labels, swap, at_ms)
