"""Gauges of the pods and volumes that the agent has at the moment of a scrape.

The numbers of running pods and containers come from the last state that the agent read from each runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from kubeletx.api import SandboxState
from kubeletx.api.counting import Metric, Samples, gauge
from kubeletx.node.host_usage import FsUsage
from kubeletx.pods import PodManager, VolumeBoard, has_ended, static_label
from kubeletx.pods.workloads.power import Power
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
