"""Metrics of the runtimes: readiness, events, and numbers and durations of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeletx.api.counting import Durations, Metric, Samples, counter, gauge, histogram

from .handles.calls import BUCKETS
from .registry import RuntimeRegistry


def runtime_metrics(registry: RuntimeRegistry) -> Iterator[Metric]:
    """Yield the metrics of all runtimes of the registry, including runtimes that are added later."""
    handles, calls = registry.handles, ("operation_type", "runtime")

    def counts() -> Iterator[tuple[tuple[str, str], int, int, Durations]]:
        for handle in handles():
            for method, count in sorted(handle.counts.items()):
                yield (method, handle.name), count.calls, count.errors, count.durations

    yield gauge(
        "kubeletx_runtime_ready",
        "1 if the runtime is ready, else 0.",
        lambda: [((runtime.name,), runtime.state.ready) for runtime in handles()],
        "runtime",
    )
    yield gauge(
        "kubeletx_runtime_abandoned_calls",
        "Number of calls of the runtime's plugin that did not end at their deadlines and still run.",
        lambda: [((runtime.name,), sum(runtime.abandoned.values())) for runtime in handles()],
        "runtime",
    )
    yield counter(
        "kubeletx_runtime_events_throttled_total",
        "Number of events of the runtime that were held back, merged or dropped.",
        lambda: [((runtime.name,), runtime.throttled_events) for runtime in handles()],
        "runtime",
    )
    yield counter(
        "kubelet_runtime_operations_total",
        "Number of calls to runtimes.",
        lambda: [(labels, number) for labels, number, _, _ in counts()],
        *calls,
    )
    yield counter(
        "kubelet_runtime_operations_errors_total",
        "Number of calls to runtimes that failed.",
        lambda: [(labels, errors) for labels, _, errors, _ in counts()],
        *calls,
    )
    yield histogram(
        "kubelet_runtime_operations_duration_seconds",
        "Duration of calls to runtimes.",
        lambda: [(labels, durations) for labels, _, _, durations in counts()],
        *calls,
    )
    yield histogram(
        "kubelet_pleg_relist_duration_seconds",
        "Duration of one list of everything on a runtime.",
        lambda: _sum(runtime.relists for runtime in handles()),
    )
    yield histogram(
        "kubelet_pleg_relist_interval_seconds",
        "Time between the beginnings of two such lists.",
        lambda: _sum(runtime.relist_intervals for runtime in handles()),
    )


def _sum(parts: Iterable[Durations]) -> Samples:
    total = Durations(BUCKETS)
    for part in parts:
        total.include(part)
    return [((), total)]
