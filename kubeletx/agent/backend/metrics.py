"""`MetricsView` from what the rooms counted; made when somebody scrapes, so that nobody else pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kubeletx.api import SandboxState
from kubeletx.pods.counters import Counters, Durations
from kubeletx.pods.manager import PodManager
from kubeletx.runtimes.calls import BUCKETS, CallCount
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import HistogramView, MetricsView, OperationView

COUNTERS = (
    "started_pods",
    "started_pods_errors",
    "started_containers",
    "started_containers_errors",
    "restarted_pods",
    "orphaned_runtime_pods",
    "admission_rejections",
)
DURATIONS = ("pod_start", "pod_worker", "pod_worker_start", "image_pull")


def metrics_view(
    node_name: str, registry: RuntimeRegistry, manager: PodManager, counters: Counters
) -> MetricsView:
    """What was counted since the start, and what there is now by the last look."""
    states: Counter[str] = Counter()
    by_runtime: Counter[str] = Counter()
    running = 0
    for worker in manager.workers.values():
        if worker.facts.runtime is not None:
            by_runtime[str(worker.facts.runtime)] += 1
        snapshot = worker.facts.snapshot
        if snapshot is not None:
            states.update(unit.state.value for unit in snapshot.units)
            running += any(sandbox.state is SandboxState.READY for sandbox in snapshot.sandboxes)
    handles = registry.handles()
    durations = {
        f"kubelet_{name}_duration_seconds": _histogram(getattr(counters, name)) for name in DURATIONS
    }
    durations["kubelet_pleg_relist_duration_seconds"] = _sum(h.relists for h in handles)
    durations["kubelet_pleg_relist_interval_seconds"] = _sum(h.relist_intervals for h in handles)
    return MetricsView(
        node_name=node_name,
        running_pods=running,
        running_containers=dict(states),
        desired_pods=len(manager.workers) + sum(1 for _ in manager.queued()),
        operations=tuple(
            OperationView(
                runtime=handle.name,
                operation=method,
                calls=count.calls,
                errors=count.errors,
                durations=_sum([count]),
            )
            for handle in handles
            for method, count in sorted(handle.counts.items())
        ),
        runtimes_ready={handle.name: handle.state.ready for handle in handles},
        pods_by_runtime=dict(by_runtime),
        counters={f"kubelet_{name}_total": getattr(counters, name) for name in COUNTERS},
        durations=durations,
    )


def _histogram(durations: Durations) -> HistogramView:
    return HistogramView(
        bounds=durations.bounds, counts=tuple(durations.counts), sum_seconds=durations.sum_seconds
    )


def _sum(counts: Iterable[CallCount]) -> HistogramView:
    total, seconds = [0] * (len(BUCKETS) + 1), 0.0
    for count in counts:
        seconds += count.seconds
        total = [a + b for a, b in zip(total, count.buckets, strict=True)]
    return HistogramView(bounds=BUCKETS, counts=tuple(total), sum_seconds=seconds)
