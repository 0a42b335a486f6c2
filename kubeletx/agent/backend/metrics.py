"""Gauges of the pods and volumes that the agent has at the moment of a scrape.

The numbers of running pods and containers come from the last state that the agent read from each runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kubeletx.api import SandboxState
from kubeletx.api.counting import Metric, Samples, counter, gauge
from kubeletx.kube.types.core import ContainerStatus, PodStatus
from kubeletx.node.host_usage import FsUsage
from kubeletx.pods import PodManager, PodWorker, VolumeBoard, has_ended, static_label
from kubeletx.pods.workloads.power import STANDING_BY, Power
from kubeletx.pods.workloads.table import workload_of
from kubeletx.volumes.operations import plugin_of
from kubeletx.volumes.preparer import VolumePreparer


def pod_metrics(manager: PodManager, *, in_cluster: bool) -> Iterator[Metric]:
    """Yield the numbers of pods and containers. `in_cluster`: static pods have mirror pods in an API server."""
    yield gauge(
        "kubelet_running_pods", "Number of pods with a running sandbox.", partial(_running_pods, manager)
    )
    yield gauge(
        "kubelet_running_containers",
        "Number of containers by state.",
        partial(_containers, manager),
        "container_state",
    )
    yield gauge(
        "kubelet_desired_pods",
        "Number of pods that pod sources deliver.",
        lambda: _counts(sorted(Counter(static_label(pod.traits) for pod in manager.desired()).items())),
        "static",
    )
    yield gauge(
        "kubelet_active_pods",
        "Number of pods whose requests count at the admission of other pods.",
        partial(_active_pods, manager),
        "static",
    )
    yield gauge(
        "kubelet_mirror_pods",
        "Number of mirror pods that should exist in the API server.",
        lambda: sum(
            in_cluster and worker.facts.admitted and worker.desired.traits.mirrored
            for worker in manager.workers.values()
        ),
    )
    yield gauge(
        "kubeletx_runtime_pods",
        "Number of pods assigned to the runtime.",
        lambda: _counts(
            Counter(
                worker.facts.runtime for worker in manager.workers.values() if worker.facts.runtime
            ).items()
        ),
        "runtime",
    )
    yield gauge(
        "kubeletx_standby_pods",
        "Number of frozen pods by state: standby or hibernated.",
        partial(_resting_pods, manager),
        "state",
    )


def series_of_pods(manager: PodManager) -> Iterator[Metric]:
    """Yield what kube-state-metrics shows in a cluster: one series for each pod or container on this node.

    Phase, state and reasons have only the series of their present value, so that the number of series does not depend on
    the pods' history.
    """
    pod, container = ("namespace", "pod"), ("namespace", "pod", "container")
    pods, containers = partial(_per_pod, manager), partial(_per_container, manager)
    yield gauge(
        "kubeletx_pod_info",
        "Always 1; the labels describe the pod.",
        lambda: pods(lambda worker, _: (worker.uid, worker.facts.runtime or "", worker.desired.source)),
        *(*pod, "uid", "runtime", "source"),
    )
    yield gauge(
        "kubeletx_pod_phase",
        "Always 1; label phase has the pod's present phase.",
        lambda: pods(lambda _, status: (status.phase or "Unknown",)),
        *(*pod, "phase"),
    )
    yield gauge(
        "kubeletx_pod_standby",
        "Always 1; only for frozen pods, by state: standby or hibernated.",
        lambda: pods(_rest),
        *(*pod, "state"),
    )
    yield gauge("kubeletx_pod_ready", "1 while the pod is ready.", lambda: _ready_pods(manager), *pod)
    yield gauge(
        "kubeletx_pod_start_time_seconds",
        "Time at which the node accepted the pod, in seconds since the epoch.",
        lambda: [
            (key, status.start_time.timestamp()) for key, _, status in _statuses(manager) if status.start_time
        ],
        *pod,
    )
    yield gauge(
        "kubeletx_container_ready",
        "1 while the container is ready.",
        lambda: containers(lambda status: ((), int(status.ready))),
        *container,
    )
    yield counter(
        "kubeletx_container_restarts_total",
        "Number of restarts of the container in this pod.",
        lambda: containers(lambda status: ((), status.restart_count)),
        *container,
    )
    yield gauge(
        "kubeletx_container_waiting",
        "Always 1; only for containers that wait, by reason.",
        lambda: containers(_waiting),
        *(*container, "reason"),
    )
    yield gauge(
        "kubeletx_container_last_exit_code",
        "Exit code of the container's last run that ended, by reason.",
        lambda: containers(_last_exit),
        *(*container, "reason"),
    )


def volume_metrics(manager: PodManager, volumes: VolumePreparer, board: VolumeBoard) -> Iterator[Metric]:
    """Yield the numbers of volumes, and the usage of each persistent volume claim. `board`: measured usage."""
    yield gauge(
        "volume_manager_total_volumes",
        "Number of volumes by state: desired by pods, or mounted.",
        partial(_volumes, manager, volumes),
        *("plugin_name", "state"),
    )
    for field, text in (
        ("capacity_bytes", "Capacity of the volume's file system in bytes."),
        ("available_bytes", "Available bytes of the volume's file system."),
        ("used_bytes", "Used bytes of the volume's file system."),
        ("inodes", "Number of inodes of the volume's file system."),
        ("inodes_free", "Number of free inodes of the volume's file system."),
        ("inodes_used", "Number of used inodes of the volume's file system."),
    ):
        yield gauge(
            f"kubelet_volume_stats_{field}",
            text,
            partial(_claims, manager, board, field),
            *("namespace", "persistentvolumeclaim"),
        )


def _running_pods(manager: PodManager) -> int:
    snapshots = (worker.facts.snapshot for worker in manager.workers.values())
    return sum(
        any(sandbox.state is SandboxState.READY for sandbox in snapshot.sandboxes)
        for snapshot in snapshots
        if snapshot is not None
    )


def _containers(manager: PodManager) -> Samples:
    snapshots = (worker.facts.snapshot for worker in manager.workers.values())
    units = (unit for snapshot in snapshots if snapshot is not None for unit in snapshot.units)
    return _counts(sorted(Counter(unit.state.value for unit in units).items()))


def _active_pods(manager: PodManager) -> Samples:
    active = Counter({"": 0, "true": 0})
    for worker in manager.workers.values():
        if worker.facts.admitted and not has_ended(worker.desired, worker.facts):
            active[static_label(worker.desired.traits)] += 1
    return _counts(active.items())


def _resting_pods(manager: PodManager) -> Samples:
    workers = manager.workers.values()
    resting = Counter(workload_of(worker.facts).rest_of(worker.desired, worker.facts) for worker in workers)
    return [((state.value,), resting[state]) for state in (Power.STANDBY, Power.HIBERNATED)]


def _statuses(manager: PodManager) -> Iterator[tuple[tuple[str, str], PodWorker, PodStatus]]:
    """Yield namespace and name, worker and last published status of each pod that has one.

    A pod that ends may still be there when its successor of the same name is: the newer one counts.
    """
    newest = {
        (worker.desired.pod.namespace, worker.desired.pod.name): worker for worker in manager.workers.values()
    }
    for key, worker in sorted(newest.items()):
        if (status := worker.facts.previous_status) is not None:
            yield key, worker, status


def _per_pod(
    manager: PodManager, labels: Callable[[PodWorker, PodStatus], tuple[str, ...] | None]
) -> Samples:
    for key, worker, status in _statuses(manager):
        if (more := labels(worker, status)) is not None:
            yield (*key, *more), 1


def _rest(worker: PodWorker, _status: PodStatus) -> tuple[str] | None:
    rests = workload_of(worker.facts).rest_of(worker.desired, worker.facts)
    return (rests.value,) if rests in STANDING_BY else None


def _ready_pods(manager: PodManager) -> Samples:
    for key, _, status in _statuses(manager):
        yield key, any(each.type == "Ready" and each.status == "True" for each in status.conditions)


def _per_container(
    manager: PodManager, sample: Callable[[ContainerStatus], tuple[tuple[str, ...], int] | None]
) -> Samples:
    for key, _, status in _statuses(manager):
        for container in (*status.init_container_statuses, *status.container_statuses):
            if (found := sample(container)) is not None:
                more, value = found
                yield (*key, container.name, *more), value


def _waiting(status: ContainerStatus) -> tuple[tuple[str, ...], int] | None:
    waiting = status.state.waiting
    return ((waiting.reason or "",), 1) if waiting is not None else None


def _last_exit(status: ContainerStatus) -> tuple[tuple[str, ...], int] | None:
    end = status.state.terminated or status.last_state.terminated
    return ((end.reason or "",), end.exit_code) if end is not None else None


def _volumes(manager: PodManager, volumes: VolumePreparer) -> Samples:
    """Return the numbers of volumes per plugin. A persistent volume claim is counted once its volume is known."""
    states: Counter[tuple[str, str]] = Counter()
    for pod in manager.running():
        ready = volumes.prepared(pod.uid)
        for volume in pod.spec.volumes:
            known = ready.volumes.get(volume.name) if ready is not None else None
            plugin = known.plugin if known is not None else plugin_of(pod, volume, None)
            states[plugin, "desired_state_of_world"] += 1
    for entry in volumes.ready_volumes():
        states[entry.plugin, "actual_state_of_world"] += 1
    return [(key, count) for key, count in states.items() if key[0]]


def _claims(manager: PodManager, board: VolumeBoard, field: str) -> Samples:
    """Return one value of the usage of each persistent volume claim, once whatever the number of pods that use it."""
    usage: dict[tuple[str, str], FsUsage] = {}
    for uid, uses in board.figures.items():
        worker = manager.workers.get(uid)
        if worker is not None:
            usage.update({(worker.desired.pod.namespace, use.claim): use.fs for use in uses.values()})
    return [
        (key, fs.inodes - fs.inodes_free if field == "inodes_used" else getattr(fs, field))
        for key, fs in sorted(usage.items(), key=lambda item: item[0])
        if key[1]
    ]


def _counts(items: Iterable[tuple[str, int]]) -> Samples:
    return [((key,), count) for key, count in items]
