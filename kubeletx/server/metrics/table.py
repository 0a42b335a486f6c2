"""Table of every series of ``/metrics``: kind, labels, help.

Series that a kubelet has too have the kubelet's names, labels and kinds; only kubelet_runtime_operations_* have one
more label, ``runtime``.
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
    "kubelet_node_name": _gauge("Name of the node; the value is 1.", "node"),
    "kubeletx_build_info": _gauge("Version of the agent.", "version"),
    "kubernetes_build_info": _gauge(
        "Version of Kubernetes that the agent reports.", "major", "minor", "git_version", "platform"
    ),
    "kubelet_running_pods": _gauge("Number of pods with a running sandbox."),
    "kubelet_running_containers": _gauge("Number of containers by state.", "container_state"),
    "kubelet_desired_pods": _gauge("Number of pods that pod sources deliver.", "static"),
    "kubelet_active_pods": _gauge(
        "Number of pods whose requests count at the admission of other pods.", "static"
    ),
    "kubelet_mirror_pods": _gauge("Number of mirror pods that should exist in the API server."),
    "kubeletx_runtime_ready": _gauge("1 if the runtime is ready, else 0.", "runtime"),
    "kubeletx_runtime_abandoned_calls": _gauge(
        "Number of calls of the runtime's plugin that did not end at their deadlines and still run.",
        "runtime",
    ),
    "kubeletx_runtime_pods": _gauge("Number of pods assigned to the runtime.", "runtime"),
    "kubeletx_runtime_events_throttled_total": _counter(
        "Number of events of the runtime that were held back, merged or dropped.", "runtime"
    ),
    "kubelet_runtime_operations_total": _counter("Number of calls to runtimes.", *_CALLS),
    "kubelet_runtime_operations_errors_total": _counter("Number of calls to runtimes that failed.", *_CALLS),
    "kubelet_runtime_operations_duration_seconds": _histogram("Duration of calls to runtimes.", *_CALLS),
    "kubelet_run_podsandbox_duration_seconds": _histogram(
        "Duration of the creation of a sandbox.", "runtime_handler"
    ),
    "kubelet_run_podsandbox_errors_total": _counter(
        "Number of sandboxes that the runtime failed to create.", "runtime_handler"
    ),
    "kubelet_started_pods_total": _counter("Number of attempts to create a sandbox."),
    "kubelet_started_pods_errors_total": _counter("Number of attempts to create a sandbox that failed."),
    "kubelet_started_containers_total": _counter(
        "Number of attempts to start a container.", "container_type"
    ),
    "kubelet_started_containers_errors_total": _counter(
        "Number of attempts to create or start a container that failed.", "container_type", "code"
    ),
    "kubelet_terminated_containers_total": _counter(
        "Number of containers that ended.", "container_type", "exit_code", "reason"
    ),
    "kubelet_restarted_pods_total": _counter(
        "Number of pods that replaced a pod of the same name after a change.", "static"
    ),
    "kubelet_orphaned_runtime_pods_total": _counter(
        "Number of pods found on a runtime that are not assigned to it."
    ),
    "kubelet_admission_rejections_total": _counter("Number of pods rejected at admission.", "reason"),
    "kubelet_preemptions": _counter("Number of pods ended in favor of a critical pod.", "preemption_signal"),
    "kubelet_evictions": _counter("Number of pods that were evicted.", "eviction_signal"),
    "kubeletx_standby_pods": _gauge("Number of frozen pods by state: standby or hibernated.", "state"),
    "kubeletx_standby_duration_seconds": _histogram(
        "Duration of a successful call that freezes, hibernates or thaws a container.", "operation_type"
    ),
    "kubeletx_standby_pod_duration_seconds": _histogram(
        "Time from the first call that froze, hibernated or thawed a container of a pod to the end of the last one.",
        "operation_type",
    ),
    "kubeletx_standby_freed_bytes_total": _counter(
        "Memory in bytes that containers gave back when they were hibernated."
    ),
    "kubelet_websocket_streaming_requests_total": _counter(
        "Number of exec, attach and port-forward streams over WebSocket.", "subresource"
    ),
    "kubelet_volume_stats_capacity_bytes": _gauge("Capacity of the volume's file system in bytes.", *_CLAIM),
    "kubelet_volume_stats_available_bytes": _gauge("Available bytes of the volume's file system.", *_CLAIM),
    "kubelet_volume_stats_used_bytes": _gauge("Used bytes of the volume's file system.", *_CLAIM),
    "kubelet_volume_stats_inodes": _gauge("Number of inodes of the volume's file system.", *_CLAIM),
    "kubelet_volume_stats_inodes_free": _gauge("Number of free inodes of the volume's file system.", *_CLAIM),
    "kubelet_volume_stats_inodes_used": _gauge("Number of used inodes of the volume's file system.", *_CLAIM),
    "volume_manager_total_volumes": _gauge(
        "Number of volumes by state: desired by pods, or mounted.", "plugin_name", "state"
    ),
    "storage_operation_duration_seconds": _histogram(
        "Duration of the set-up or tear-down of a volume.", *_STORAGE
    ),
    "storage_operation_errors_total": _counter(
        "Number of set-ups and tear-downs of volumes that failed.", "volume_plugin", "operation_name"
    ),
    "kubelet_pod_start_duration_seconds": _histogram(
        "Time from when the agent first sees a pod until it runs."
    ),
    "kubelet_pod_start_sli_duration_seconds": _histogram(
        "Time from a pod's creation until its containers run, without image pulls and init containers.",
        "first_with_network",
    ),
    "kubelet_pod_start_total_duration_seconds": _histogram(
        "Time from a pod's creation until its containers run.", "first_with_network"
    ),
    "kubelet_pod_worker_duration_seconds": _histogram(
        "Duration of one turn of a pod worker.", "operation_type"
    ),
    "kubelet_pod_worker_start_duration_seconds": _histogram(
        "Time from when the agent first sees a pod until its worker starts."
    ),
    "kubelet_cgroup_manager_duration_seconds": _histogram(
        "Duration of a change of a pod's cgroup.", "operation_type"
    ),
    "kubelet_pleg_relist_duration_seconds": _histogram("Duration of one list of everything on a runtime."),
    "kubelet_pleg_relist_interval_seconds": _histogram("Time between the beginnings of two such lists."),
    "kubelet_image_pull_duration_seconds": _histogram("Duration of one image pull."),
    "kubelet_credential_provider_config_info": _gauge(
        "Hash of the configuration of credential providers; the value is 1.", "hash"
    ),
    "kubelet_credential_provider_plugin_errors_total": _counter(
        "Number of runs of a credential provider that failed.", "plugin_name"
    ),
    "kubelet_credential_provider_plugin_duration": _histogram(
        "Duration of one run of a credential provider in seconds.", "plugin_name"
    ),
    "kubelet_certificate_manager_client_ttl_seconds": _gauge(
        "Seconds until the client certificate expires; +Inf without a certificate."
    ),
    "kubelet_certificate_manager_client_expiration_renew_errors": _counter(
        "Number of failed renewals of the client certificate."
    ),
    "kubelet_certificate_manager_server_ttl_seconds": _gauge(
        "Seconds until the serving certificate expires; +Inf without a certificate."
    ),
    "kubelet_server_expiration_renew_errors": _counter(
        "Number of failed renewals of the serving certificate."
    ),
    "kubelet_certificate_manager_server_rotation_seconds": _histogram(
        "Age of a serving certificate when it was renewed."
    ),
    "kubelet_http_requests_total": _counter(
        "Number of requests to the kubelet API and the read-only port.", *_HTTP
    ),
    "kubelet_http_requests_duration_seconds": _histogram(
        "Duration of requests to the kubelet API and the read-only port.", *_HTTP
    ),
    "kubelet_http_inflight_requests": _gauge("Number of such requests in progress.", *_HTTP),
    "rest_client_requests_total": _counter("Number of requests to the API server.", "code", "host", "method"),
    "rest_client_request_duration_seconds": _histogram(
        "Time until the answer to a request to the API server begins.", *_REST
    ),
    "rest_client_rate_limiter_duration_seconds": _histogram(
        "Time that a request waits for the client's own rate limit.", *_REST
    ),
    "rest_client_request_size_bytes": _histogram("Size of the body of a request to the API server.", *_REST),
    "rest_client_response_size_bytes": _histogram("Size of the body of an answer, except watches.", *_REST),
    "kubeletx_plugin_callback_duration_seconds": _histogram(
        "Duration of calls to plugins, except calls to runtimes.", *_CALLBACK
    ),
    "kubeletx_plugin_callback_errors_total": _counter(
        "Number of such calls that failed.", *_CALLBACK, "reason"
    ),
    "kubeletx_plugin_abandoned_calls": _gauge(
        "Number of such calls that were cancelled at their deadlines and still run.", *_CALLBACK
    ),
}
"""All series by name, in the order in which ``/metrics`` shows them."""
