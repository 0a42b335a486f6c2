"""`metrics_view`: builds a `MetricsView` from the agent's counters at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kubeletx import __version__
from kubeletx.api import SandboxState
from kubeletx.api.counting import LabelledDurations
from kubeletx.kube.client.counts import RequestCounts
from kubeletx.pods import PodManager, ProbeOutcome, UnitProbes, VolumeBoard, static_label
from kubeletx.runtimes.handles.calls import BUCKETS, CallCount
from kubeletx.server.views import (
    ClaimView,
    CountView,
    HistogramView,
    LabelledHistogram,
    MetricsView,
    OperationView,
    ProbeCount,
    ProbeDuration,
    ProviderMetrics,
)

from .counted import Counted
from .metric_counts import (
    build_info,
    histogram_view,
    histograms,
    http_metrics,
    plugin_metrics,
    pod_counts,
    pod_durations,
    pod_gauges,
    rest_metrics,
    volume_gauges,
    volume_operations,
)

COUNTERS = (
    "started_pods",
    "started_pods_errors",
    "orphaned_runtime_pods",
)
RESULTS = {
    ProbeOutcome.SUCCESS: "successful",
    ProbeOutcome.WARNING: "successful",
    ProbeOutcome.FAILURE: "failed",
}
"""Label of each probe result, as in the kubelet; any other result is labelled ``unknown``."""
DURATIONS = ("pod_start", "pod_worker_start", "image_pull")


def metrics_view(node_name: str, counted: Counted) -> MetricsView:
    """Build the metrics of one scrape: counters since the agent's start, and gauges of the present state.

    The numbers of running pods and containers come from the last state that the agent read from each runtime.
    """
    manager, counters, secrets = counted.manager, counted.counters, counted.secrets
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
    handles = counted.registry.handles()
    durations = {
        f"kubelet_{name}_duration_seconds": histogram_view(getattr(counters, name)) for name in DURATIONS
    }
    durations["kubelet_pleg_relist_duration_seconds"] = _sum(h.relists for h in handles)
    durations["kubelet_pleg_relist_interval_seconds"] = _sum(h.relist_intervals for h in handles)
    if secrets.server is not None:
        durations["kubelet_certificate_manager_server_rotation_seconds"] = histogram_view(
            secrets.server.lives
        )
    labelled, counts = _with_labels(counted)
    throttled = (
        CountView(
            name="kubeletx_runtime_events_throttled_total",
            labels={"runtime": str(handle.name)},
            value=handle.throttled_events,
        )
        for handle in handles
    )
    return MetricsView(
        node_name=node_name,
        running_pods=running,
        running_containers=dict(states),
        desired_pods=dict(Counter(static_label(one.traits) for one in manager.desired())),
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
        abandoned_calls={handle.name: sum(handle.abandoned.values()) for handle in handles},
        pods_by_runtime=dict(by_runtime),
        counters={f"kubelet_{name}_total": getattr(counters, name) for name in COUNTERS}
        | secrets.certificates()
        | {"kubeletx_standby_freed_bytes_total": counters.standby_freed_bytes},
        counts=(*counts, *throttled),
        durations=durations,
        labelled_durations=labelled,
        probes=tuple(_probes(manager, counted.probes)),
        probe_durations=tuple(_probe_durations(manager, counted.probes)),
        claims=tuple(_claims(manager, counted.claims)),
        providers=tuple(
            ProviderMetrics(name=name, errors=count.errors, durations=_sum([count]))
            for name, count in secrets.providers.counts.items()
        ),
        provider_digest=secrets.providers.digest,
    )


def _with_labels(counted: Counted) -> tuple[tuple[LabelledHistogram, ...], tuple[CountView, ...]]:
    manager, in_cluster = counted.manager, counted.requests is not None
    storage_durations, storage_errors = volume_operations(counted.volumes)
    http_durations, http_counts = http_metrics(counted.http)
    rest_durations, rest_counts = rest_metrics(counted.requests or RequestCounts())
    plugin_durations, plugin_errors = plugin_metrics(counted.plugins)
    cgroups = counted.cgroups.durations if counted.cgroups is not None else LabelledDurations()
    durations = (
        *pod_durations(counted.counters),
        *histograms("kubelet_cgroup_manager_duration_seconds", ("operation_type",), cgroups),
        *storage_durations,
        *http_durations,
        *rest_durations,
        *plugin_durations,
    )
    return durations, (
        build_info(__version__),
        *pod_counts(counted.counters),
        *pod_gauges(manager, in_cluster=in_cluster),
        *volume_gauges(manager, counted.volumes),
        *storage_errors,
        *http_counts,
        *rest_counts,
        *plugin_errors,
    )


def _probes(manager: PodManager, probes: UnitProbes) -> Iterator[ProbeCount]:
    for uid, counts in probes.counts().items():
        worker = manager.workers.get(uid)
        if worker is None:
            continue
        pod = worker.desired.pod
        words: Counter[tuple[str, str, str]] = Counter()
        for (container, kind, result), number in counts.items():
            words[container, kind.value, RESULTS.get(result, "unknown")] += number
        for (container, probe, word), number in words.items():
            yield ProbeCount(
                namespace=pod.namespace,
                pod=pod.name,
                uid=uid,
                container=container,
                probe=probe,
                result=word,
                count=number,
            )


def _probe_durations(manager: PodManager, probes: UnitProbes) -> Iterator[ProbeDuration]:
    for uid, durations in probes.durations().items():
        worker = manager.workers.get(uid)
        if worker is None:
            continue
        pod = worker.desired.pod
        for (container, probe), one in durations.items():
            yield ProbeDuration(
                namespace=pod.namespace,
                pod=pod.name,
                container=container,
                probe=probe,
                histogram=histogram_view(one),
            )


def _claims(manager: PodManager, volumes: VolumeBoard) -> Iterator[ClaimView]:
    """Yield the usage of each persistent volume claim once, whatever the number of pods that use it."""
    found = {}
    for uid, uses in volumes.figures.items():
        worker = manager.workers.get(uid)
        if worker is not None:
            found.update({(worker.desired.pod.namespace, use.claim): use.fs for use in uses.values()})
    for (namespace, claim), fs in sorted(found.items()):
        if claim:
            yield ClaimView(
                namespace=namespace,
                claim=claim,
                capacity_bytes=fs.capacity_bytes,
                available_bytes=fs.available_bytes,
                used_bytes=fs.used_bytes,
                inodes=fs.inodes,
                inodes_free=fs.inodes_free,
                inodes_used=fs.inodes - fs.inodes_free,
            )


def _sum(counts: Iterable[CallCount]) -> HistogramView:
    total, seconds = [0] * (len(BUCKETS) + 1), 0.0
    for count in counts:
        seconds += count.seconds
        total = [a + b for a, b in zip(total, count.buckets, strict=True)]
    return HistogramView(bounds=BUCKETS, counts=tuple(total), sum_seconds=seconds)
