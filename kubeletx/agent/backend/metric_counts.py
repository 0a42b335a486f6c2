"""Builds the labelled metrics of a scrape from the counters of the agent's components."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kubeletx.api.counting import Durations, LabelledDurations
from kubeletx.kube.client.counts import RequestCounts
from kubeletx.node.info import KUBERNETES_VERSION, architecture, kubelet_version
from kubeletx.pods import Counters, PodManager, has_ended, static_label
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.table import workload_of
from kubeletx.server.metrics.http_counts import HttpCounts
from kubeletx.server.views import CountView, HistogramView, LabelledHistogram
from kubeletx.volumes.operations import SUCCESS, plugin_of
from kubeletx.volumes.preparer import VolumePreparer

if TYPE_CHECKING:
    from kubeletx.plugins.callbacks import CallbackCounts

HTTP_LABELS = ("method", "path", "server_type", "long_running")


def histogram_view(durations: Durations) -> HistogramView:
    """Convert `durations` to the `HistogramView` that a scrape returns."""
    return HistogramView(
        bounds=durations.bounds, counts=tuple(durations.counts), sum_seconds=durations.sum_seconds
    )


def histograms(
    name: str, labels: tuple[str, ...], durations: LabelledDurations
) -> Iterator[LabelledHistogram]:
    """Yield one histogram for each combination of label values of metric `name`.

    `labels`: names of the labels, in the order of the label values in the keys of `durations`.
    """
    for values, one in durations.items():
        named = dict(zip(labels, values, strict=True))
        yield LabelledHistogram(name=name, labels=named, histogram=histogram_view(one))


def build_info(agent_version: str) -> CountView:
    """Build metric ``kubernetes_build_info``: its value is 1, its labels have the version."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    labels = {
        "major": major,
        "minor": minor,
        "git_version": kubelet_version(agent_version),
        "platform": f"{os.uname().sysname.lower()}/{architecture()}",
    }
    return CountView(name="kubernetes_build_info", labels=labels, value=1)


def pod_counts(counters: Counters) -> Iterator[CountView]:
    """Yield the counters of pods and containers since the agent's start, such as started and terminated containers."""
    rows: tuple[tuple[str, tuple[str, ...], Mapping[Any, int]], ...] = (
        ("kubelet_started_containers_total", ("container_type",), counters.started_containers),
        (
            "kubelet_started_containers_errors_total",
            ("container_type", "code"),
            counters.started_containers_errors,
        ),
        (
            "kubelet_terminated_containers_total",
            ("container_type", "exit_code", "reason"),
            counters.terminated_containers,
        ),
        ("kubelet_restarted_pods_total", ("static",), counters.restarted_pods),
        ("kubelet_admission_rejections_total", ("reason",), counters.admission_rejections),
        ("kubelet_preemptions", ("preemption_signal",), counters.preemptions),
        ("kubelet_evictions", ("eviction_signal",), counters.evictions),
        ("kubelet_run_podsandbox_errors_total", ("runtime_handler",), counters.run_podsandbox_errors),
        ("kubelet_websocket_streaming_requests_total", ("subresource",), counters.websocket_streams),
    )
    for name, labels, counted in rows:
        yield from _counts(name, labels, counted)


def pod_durations(counters: Counters) -> Iterator[LabelledHistogram]:
    """Yield the histograms of the durations of pod workers, of sandbox starts and of pod starts."""
    yield from histograms("kubelet_pod_worker_duration_seconds", ("operation_type",), counters.pod_worker)
    yield from histograms(
        "kubelet_run_podsandbox_duration_seconds", ("runtime_handler",), counters.run_podsandbox
    )
    yield from histograms("kubeletx_standby_duration_seconds", ("operation_type",), counters.standby)
    yield from histograms("kubeletx_standby_pod_duration_seconds", ("operation_type",), counters.standby_pods)
    label = ("first_with_network",)
    yield from histograms("kubelet_pod_start_sli_duration_seconds", label, counters.starts.sli)
    yield from histograms("kubelet_pod_start_total_duration_seconds", label, counters.starts.total)


def pod_gauges(manager: PodManager, *, in_cluster: bool) -> Iterator[CountView]:
    """Yield the present numbers of active pods (admitted and not ended) and of mirror pods.

    `in_cluster`: the node belongs to a cluster, so static pods have mirror pods.
    """
    active: Counter[str] = Counter({"": 0, "true": 0})
    mirrors = 0
    for worker in manager.workers.values():
        desired, facts = worker.desired, worker.facts
        if facts.admitted and not has_ended(desired, facts):
            active[static_label(desired.traits)] += 1
        mirrors += in_cluster and facts.admitted and desired.traits.mirrored
    yield from _counts("kubelet_active_pods", ("static",), active)
    yield CountView(name="kubelet_mirror_pods", labels={}, value=mirrors)
    workers = manager.workers.values()
    resting = Counter(workload_of(one.facts).rest_of(one.desired, one.facts) for one in workers)
    for state in (Power.STANDBY, Power.HIBERNATED):
        yield CountView(name="kubeletx_standby_pods", labels={"state": state.value}, value=resting[state])


def volume_gauges(manager: PodManager, volumes: VolumePreparer) -> Iterator[CountView]:
    """Yield the numbers of volumes per volume plugin, both needed by running pods and set up on the node.

    A persistent volume claim is counted once its volume is known.
    """
    states: Counter[tuple[str, str]] = Counter()
    for pod in manager.running():
        ready = volumes.prepared(pod.uid)
        for volume in pod.spec.volumes:
            known = ready.volumes.get(volume.name) if ready is not None else None
            plugin = known.plugin if known is not None else plugin_of(pod, volume, None)
            states[plugin, "desired_state_of_world"] += 1
    for ready_one in volumes.ready_volumes():
        states[ready_one.plugin, "actual_state_of_world"] += 1
    known_only = {key: count for key, count in states.items() if key[0]}
    yield from _counts("volume_manager_total_volumes", ("plugin_name", "state"), known_only)


def volume_operations(volumes: VolumePreparer) -> tuple[list[LabelledHistogram], list[CountView]]:
    """Return the durations of set-ups and tear-downs of volumes, and the numbers of failed ones."""
    labels = ("volume_plugin", "operation_name", "status")
    durations = [
        LabelledHistogram(name=row.name, labels={**row.labels, "migrated": "false"}, histogram=row.histogram)
        for row in histograms("storage_operation_duration_seconds", labels, volumes.operations.durations)
    ]
    errors: Counter[tuple[str, str]] = Counter()
    for (plugin, operation, outcome), one in volumes.operations.durations.items():
        errors[plugin, operation] += sum(one.counts) if outcome != SUCCESS else 0
    return durations, list(_counts("storage_operation_errors_total", labels[:2], errors))


def http_metrics(counts: HttpCounts) -> tuple[list[LabelledHistogram], list[CountView]]:
    """Return the durations and the numbers of the requests to the kubelet's API and the read-only port."""
    durations = list(histograms("kubelet_http_requests_duration_seconds", HTTP_LABELS, counts.durations))
    return durations, [
        *_counts("kubelet_http_requests_total", HTTP_LABELS, counts.requests),
        *_counts("kubelet_http_inflight_requests", HTTP_LABELS, counts.inflight),
    ]


def rest_metrics(counts: RequestCounts) -> tuple[list[LabelledHistogram], list[CountView]]:
    """Return the durations and sizes, and the numbers, of the agent's requests to API servers."""
    by_name = {
        "rest_client_request_duration_seconds": counts.durations,
        "rest_client_rate_limiter_duration_seconds": counts.throttled,
        "rest_client_request_size_bytes": counts.request_sizes,
        "rest_client_response_size_bytes": counts.response_sizes,
    }
    durations = [row for name, one in by_name.items() for row in histograms(name, ("host", "verb"), one)]
    return durations, list(_counts("rest_client_requests_total", ("code", "host", "method"), counts.answers))


def plugin_metrics(counts: CallbackCounts | None) -> tuple[list[LabelledHistogram], list[CountView]]:
    """Return the durations, and the errors and abandoned calls, of calls to plugins, except calls to runtimes.

    `counts` None: plugins register only runtimes; the result is empty.
    """
    if counts is None:
        return [], []
    labels = ("plugin", "registration", "callback")
    durations = list(histograms("kubeletx_plugin_callback_duration_seconds", labels, counts.durations))
    return durations, [
        *_counts("kubeletx_plugin_callback_errors_total", (*labels, "reason"), counts.errors),
        *_counts("kubeletx_plugin_abandoned_calls", labels, counts.abandoned),
    ]


def _counts(name: str, labels: tuple[str, ...], counted: Mapping[Any, int]) -> Iterator[CountView]:
    for key, value in counted.items():
        values = key if isinstance(key, tuple) else (key,)
        yield CountView(name=name, labels=dict(zip(labels, map(str, values), strict=True)), value=value)
