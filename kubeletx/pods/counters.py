"""Metrics about pods since the agent started: plain numbers that a scrape reads.

Counting costs well under a microsecond: an addition, for durations also a bisection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kubeletx.api import PodUid
from kubeletx.api.counting import DEFAULT_BOUNDS, Durations, LabelledDurations, Metric, counter, histogram
from kubeletx.kube.types.core import ContainerStateTerminated, ContainerStatus, Pod, PodStatus

from .model.roles import ephemeral_units, init_units
from .model.sources import SourceTraits
from .start_times import START, StartTimes

QUICK = DEFAULT_BOUNDS
STANDBY: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PULL: tuple[float, ...] = (1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600)


@dataclass(slots=True)
class Counters:
    """All counters of pods. Pods that an earlier agent process started are not counted."""

    started_pods: int = 0
    """Sandboxes whose creation was requested."""
    started_pods_errors: int = 0
    started_containers: Counter[str] = field(default_factory=Counter)
    """Containers and virtual machines whose creation was requested, by container type (`container_type`)."""
    started_containers_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Failed creates and starts, by container type and reason."""
    terminated_containers: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """Observed container ends, by container type, exit code and reason."""
    restarted_pods: Counter[str] = field(default_factory=lambda: Counter({"": 0, "true": 0}))
    """Pods that ended and were replaced by another of the same name and source, by `static_label`."""
    orphaned_runtime_pods: int = 0
    """Pods found on a runtime although no stored binding assigns them to it."""
    admission_rejections: Counter[str] = field(default_factory=Counter)
    """Rejections by reason."""
    preemptions: Counter[str] = field(default_factory=Counter)
    """Pods ended so that a critical pod fits, by the resource that was short."""
    evictions: Counter[str] = field(default_factory=Counter)
    """Pods that were evicted, by the signal of the threshold or limit."""
    websocket_streams: Counter[str] = field(default_factory=Counter)
    """WebSocket streams that the node's API served, by subresource."""
    pod_start: Durations = field(default_factory=lambda: Durations(START))
    pod_worker: LabelledDurations = field(default_factory=LabelledDurations)
    """Durations of workers' rounds (observe, plan, publish) by operation: create, update, sync, kill."""
    pod_worker_start: Durations = field(default_factory=Durations)
    run_podsandbox: LabelledDurations = field(default_factory=LabelledDurations)
    """Durations of sandbox creations by runtime handler, failed ones included."""
    run_podsandbox_errors: Counter[str] = field(default_factory=Counter)
    standby: LabelledDurations = field(default_factory=lambda: LabelledDurations(STANDBY))
    """Durations of successful calls that froze, hibernated or thawed a container, by operation."""
    standby_pods: LabelledDurations = field(default_factory=lambda: LabelledDurations(STANDBY))
    """Durations of freezes, hibernations and thaws of whole pods, by operation."""
    standby_freed_bytes: int = 0
    """Memory that containers gave back when they were hibernated, in bytes."""
    image_pull: Durations = field(default_factory=lambda: Durations(PULL))
    starts: StartTimes = field(default_factory=StartTimes)
    _seen: dict[PodUid, float] = field(default_factory=dict)
    _waiting: set[PodUid] = field(default_factory=set)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of these counters."""
        handler, operation, network = "runtime_handler", "operation_type", "first_with_network"
        yield histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Duration of the creation of a sandbox.",
            self.run_podsandbox,
            handler,
        )
        yield counter(
            "kubelet_run_podsandbox_errors_total",
            "Number of sandboxes that the runtime failed to create.",
            self.run_podsandbox_errors,
            handler,
        )
        yield counter(
            "kubelet_started_pods_total", "Number of attempts to create a sandbox.", lambda: self.started_pods
        )
        yield counter(
            "kubelet_started_pods_errors_total",
            "Number of attempts to create a sandbox that failed.",
            lambda: self.started_pods_errors,
        )
        yield counter(
            "kubelet_started_containers_total",
            "Number of attempts to start a container.",
            self.started_containers,
            "container_type",
        )
        yield counter(
            "kubelet_started_containers_errors_total",
            "Number of attempts to create or start a container that failed.",
            self.started_containers_errors,
            "container_type",
            "code",
        )
        yield counter(
            "kubelet_terminated_containers_total",
            "Number of containers that ended.",
            self.terminated_containers,
            "container_type",
            "exit_code",
            "reason",
        )
        yield counter(
            "kubelet_restarted_pods_total",
            "Number of pods that replaced a pod of the same name after a change.",
            self.restarted_pods,
            "static",
        )
        yield counter(
            "kubelet_orphaned_runtime_pods_total",
            "Number of pods found on a runtime that are not assigned to it.",
            lambda: self.orphaned_runtime_pods,
        )
        yield counter(
            "kubelet_admission_rejections_total",
            "Number of pods rejected at admission.",
            self.admission_rejections,
            "reason",
        )
        yield counter(
            "kubelet_preemptions",
            "Number of pods ended in favor of a critical pod.",
            self.preemptions,
            "preemption_signal",
        )
        yield counter(
            "kubelet_evictions", "Number of pods that were evicted.", self.evictions, "eviction_signal"
        )
        yield histogram(
            "kubeletx_standby_duration_seconds",
            "Duration of a successful call that freezes, hibernates or thaws a container.",
            self.standby,
            operation,
        )
        yield histogram(
            "kubeletx_standby_pod_duration_seconds",
            "Time from the first call that froze, hibernated or thawed a container of a pod to the end of the last one.",
            self.standby_pods,
            operation,
        )
        yield counter(
            "kubeletx_standby_freed_bytes_total",
            "Memory in bytes that containers gave back when they were hibernated.",
            lambda: self.standby_freed_bytes,
        )
        yield counter(
            "kubelet_websocket_streaming_requests_total",
            "Number of exec, attach and port-forward streams over WebSocket.",
            self.websocket_streams,
            "subresource",
        )
        yield histogram(
            "kubelet_pod_start_duration_seconds",
            "Time from when the agent first sees a pod until it runs.",
            self.pod_start,
        )
        yield histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Time from a pod's creation until its containers run, without image pulls and init containers.",
            self.starts.sli,
            network,
        )
        yield histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Time from a pod's creation until its containers run.",
            self.starts.total,
            network,
        )
        yield histogram(
            "kubelet_pod_worker_duration_seconds",
            "Duration of one turn of a pod worker.",
            self.pod_worker,
            operation,
        )
        yield histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "Time from when the agent first sees a pod until its worker starts.",
            self.pod_worker_start,
        )
        yield histogram("kubelet_image_pull_duration_seconds", "Duration of one image pull.", self.image_pull)

    def first_seen(self, uid: PodUid, now: float) -> None:
        """Begin to measure the start of a new pod. `now`: monotonic seconds, as in all methods of this class."""
        self._seen.setdefault(uid, now)
        self._waiting.add(uid)

    def worker_turned(self, uid: PodUid, seconds: float, now: float, operation: str = "sync") -> None:
        """Count one round of a worker (observe, plan, publish), which took `seconds`.

        `operation`: as in `pod_worker`.
        """
        self.pod_worker.add(seconds, operation)
        if uid in self._waiting:
            self._waiting.discard(uid)
            self.pod_worker_start.add(max(now - self._seen.get(uid, now), 0.0))

    def phase_changed(self, uid: PodUid, phase: str, now: float) -> None:
        """Record how long the pod took to start, at its first published status with phase Running."""
        if phase == "Running" and (seen := self._seen.pop(uid, None)) is not None:
            self.pod_start.add(now - seen)

    def ended(self, before: PodStatus | None, after: PodStatus) -> None:
        """Count containers that ended between two published statuses.

        `before` None: nothing is counted, since the ends may be older than this agent process.
        """
        if before is None:
            return
        for kind, old, new in (
            ("init_container", before.init_container_statuses, after.init_container_statuses),
            ("container", before.container_statuses, after.container_statuses),
            ("ephemeral_container", before.ephemeral_container_statuses, after.ephemeral_container_statuses),
        ):
            known = {end.container_id for status in old if (end := _last_end(status)) is not None}
            for status in new:
                end = _last_end(status)
                if end is not None and end.container_id not in known:
                    self.terminated_containers[kind, end.exit_code, end.reason or ""] += 1

    def gone(self, uid: PodUid) -> None:
        """Drop the times kept for a removed pod; the counters keep their values."""
        self._seen.pop(uid, None)
        self._waiting.discard(uid)
        self.starts.gone(uid)


def _last_end(status: ContainerStatus) -> ContainerStateTerminated | None:
    return status.state.terminated or status.last_state.terminated


def container_type(pod: Pod, name: str) -> str:
    """Return the value of the kubelet's metric label container_type for the container `name`.

    The values are container, init_container and ephemeral_container.
    """
    if any(unit.name == name for unit in init_units(pod)):
        return "init_container"
    if any(unit.name == name for unit in ephemeral_units(pod)):
        return "ephemeral_container"
    return "container"


def static_label(source: SourceTraits) -> str:
    """Return the value of the kubelet's metric label static: ``true``, or empty for pods of the API server."""
    return "" if source.is_cluster else "true"
