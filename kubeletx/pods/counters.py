"""Metrics about pods since the agent started: plain numbers that a scrape reads.

Counting costs well under a microsecond: an addition, for durations also a bisection. The names are those of the
kubelet's metrics without their prefix, which `kubeletx.agent.backend.about` adds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kubeletx.api import PodUid
from kubeletx.api.counting import DEFAULT_BOUNDS, Durations, LabelledDurations
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
            known = {end.container_id for one in old if (end := _last_end(one)) is not None}
            for one in new:
                end = _last_end(one)
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
