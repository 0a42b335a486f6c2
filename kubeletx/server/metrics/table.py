"""Every series of ``/metrics``: kind, labels, help. Names, labels and kinds are the kubelet's where it has the series.

kubelet_runtime_operations_* carry one more label than the kubelet's: ``runtime``.
Source: kubelet, pkg/kubelet/metrics; component-base, metrics/prometheus/restclient, version; pkg/volume/util.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """Kind, names of labels and help of one metric. `kind`: counter, gauge or histogram."""

    kind: str
    labels: tuple[str, ...]
    text: str


def _counter(text: str, *labels: str) -> Metric:
    return Metric("counter", labels, text)


def _gauge(text: str, *labels: str) -> Metric:
    return Metric("gauge", labels, text)


def _histogram(text: str, *labels: str) -> Metric:
    return Metric("histogram", labels, text)


_CALLS = ("operation_type", "runtime")
_CALLBACK = ("plugin", "registration", "callback")
_CLAIM = ("namespace", "persistentvolumeclaim")
_HTTP = ("method", "path", "server_type", "long_running")
_REST = ("host", "verb")
_STORAGE = ("volume_plugin", "operation_name", "status", "migrated")

METRICS: Final[dict[str, Metric]] = {
    "kubelet_node_name": _gauge("The node's name.", "node"),
    "kubeletx_build_info": _gauge("Version of the agent.", "version"),
    "kubernetes_build_info": _gauge(
        "Version of Kubernetes that the agent reports.", "major", "minor", "git_version", "platform"
    ),
    "kubelet_running_pods": _gauge("Pods with a running sandbox."),
    "kubelet_running_containers": _gauge("Containers by state.", "container_state"),
    "kubelet_desired_pods": _gauge("Pods that sources want.", "static"),
    "kubelet_active_pods": _gauge("Pods that count when others are admitted.", "static"),
    "kubelet_mirror_pods": _gauge("Mirror pods that should be in the API server."),
    "kubeletx_runtime_ready": _gauge("Whether the runtime is ready.", "runtime"),
    "kubeletx_runtime_pods": _gauge("Pods bound to the runtime.", "runtime"),
    "kubelet_runtime_operations_total": _counter("Calls to runtimes.", *_CALLS),
    "kubelet_runtime_operations_errors_total": _counter("Calls that failed.", *_CALLS),
    "kubelet_runtime_operations_duration_seconds": _histogram("Duration of calls.", *_CALLS),
    "kubelet_run_podsandbox_duration_seconds": _histogram("Creation of sandboxes.", "runtime_handler"),
    "kubelet_run_podsandbox_errors_total": _counter(
        "Sandboxes that the runtime could not create.", "runtime_handler"
    ),
    "kubelet_started_pods_total": _counter("Sandboxes that were asked for."),
    "kubelet_started_pods_errors_total": _counter("Sandboxes that could not be made."),
    "kubelet_started_containers_total": _counter("Containers that were asked for.", "container_type"),
    "kubelet_started_containers_errors_total": _counter(
        "Containers that could not be made or started.", "container_type", "code"
    ),
    "kubelet_terminated_containers_total": _counter(
        "Containers that ended.", "container_type", "exit_code", "reason"
    ),
    "kubelet_restarted_pods_total": _counter(
        "Pods that took the place of one of the same name after a change.", "static"
    ),
    "kubelet_orphaned_runtime_pods_total": _counter("Pods found on a runtime without a binding."),
    "kubelet_admission_rejections_total": _counter("Pods rejected at admission.", "reason"),
    "kubelet_preemptions": _counter("Pods that made way for a critical one.", "preemption_signal"),
    "kubelet_evictions": _counter("Pods that were evicted.", "eviction_signal"),
    "kubelet_websocket_streaming_requests_total": _counter(
        "Streams by WebSocket that end at the node.", "subresource"
    ),
    "kubelet_volume_stats_capacity_bytes": _gauge("Size of the file system behind a claim.", *_CLAIM),
    "kubelet_volume_stats_available_bytes": _gauge("What is left of it.", *_CLAIM),
    "kubelet_volume_stats_used_bytes": _gauge("What is used of it.", *_CLAIM),
    "kubelet_volume_stats_inodes": _gauge("Its inodes.", *_CLAIM),
    "kubelet_volume_stats_inodes_free": _gauge("Those that are free.", *_CLAIM),
    "kubelet_volume_stats_inodes_used": _gauge("Those that are used.", *_CLAIM),
    "volume_manager_total_volumes": _gauge(
        "Volumes that pods want, and that are ready.", "plugin_name", "state"
    ),
    "storage_operation_duration_seconds": _histogram("Set-ups and tear-downs of volumes.", *_STORAGE),
    "storage_operation_errors_total": _counter("Those that failed.", "volume_plugin", "operation_name"),
    "kubelet_pod_start_duration_seconds": _histogram("From the first sight of a pod to its running."),
    "kubelet_pod_start_sli_duration_seconds": _histogram(
        "From a pod's creation until its containers run, without pulls and init containers.",
        "first_with_network",
    ),
    "kubelet_pod_start_total_duration_seconds": _histogram(
        "From a pod's creation until its containers run.", "first_with_network"
    ),
    "kubelet_pod_worker_duration_seconds": _histogram("One turn of a pod worker.", "operation_type"),
    "kubelet_pod_worker_start_duration_seconds": _histogram(
        "From the first sight of a pod to its worker's start."
    ),
    "kubelet_cgroup_manager_duration_seconds": _histogram("Changes of pods' cgroups.", "operation_type"),
    "kubelet_pleg_relist_duration_seconds": _histogram("One relist of a runtime."),
    "kubelet_pleg_relist_interval_seconds": _histogram("Time between two relists."),
    "kubelet_image_pull_duration_seconds": _histogram("One image pull."),
    "kubelet_credential_provider_config_info": _gauge("The credential providers' configuration.", "hash"),
    "kubelet_credential_provider_plugin_errors_total": _counter(
        "Runs of a provider that failed.", "plugin_name"
    ),
    "kubelet_credential_provider_plugin_duration": _histogram("Seconds of a provider's run.", "plugin_name"),
    "kubelet_certificate_manager_client_ttl_seconds": _gauge(
        "How long the client certificate is good; +Inf without one."
    ),
    "kubelet_certificate_manager_client_expiration_renew_errors": _counter(
        "Failed renewals of the client certificate."
    ),
    "kubelet_certificate_manager_server_ttl_seconds": _gauge(
        "How long the serving certificate is good; +Inf without one."
    ),
    "kubelet_server_expiration_renew_errors": _counter("Failed renewals of the serving certificate."),
    "kubelet_certificate_manager_server_rotation_seconds": _histogram(
        "Life of a serving certificate until it was renewed."
    ),
    "kubelet_http_requests_total": _counter("Requests to the kubelet's API and the read-only port.", *_HTTP),
    "kubelet_http_requests_duration_seconds": _histogram("How long they took.", *_HTTP),
    "kubelet_http_inflight_requests": _gauge("Those that are not answered yet.", *_HTTP),
    "rest_client_requests_total": _counter("Requests to the API server.", "code", "host", "method"),
    "rest_client_request_duration_seconds": _histogram("Until their answer began.", *_REST),
    "rest_client_rate_limiter_duration_seconds": _histogram("Waits for the client's own limit.", *_REST),
    "rest_client_request_size_bytes": _histogram("Bodies of requests.", *_REST),
    "rest_client_response_size_bytes": _histogram("Bodies of answers, watches aside.", *_REST),
    "kubeletx_plugin_callback_duration_seconds": _histogram("Calls of plugins, runtimes aside.", *_CALLBACK),
    "kubeletx_plugin_callback_errors_total": _counter("Those that failed.", *_CALLBACK, "reason"),
}
"""All series, in the order of the page."""
