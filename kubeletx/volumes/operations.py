"""Measures the durations of volume set-ups and tear-downs for metrics, with the kubelet's names.

Labels are plugin, operation and outcome. A set-up is timed on the thread that does it; the event loop's thread then
adds it to the totals. All volumes of a pod are torn down together, so that a tear-down has an empty plugin name.

Source: kubernetes, pkg/volume/util/metrics.go, pkg/volume/*/ (plugin names).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kubeletx.api.counting import LabelledDurations, Metric, Samples, counter, histogram
from kubeletx.kube.types.core import Pod, Volume

from . import layout
from .cluster_objects import ObjectSet
from .kinds.table import kind_of
from .references import claim_of

BOUNDS: tuple[float, ...] = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
MOUNT, UNMOUNT = "volume_mount", "volume_unmount"
SUCCESS, FAILURE = "success", "fail-unknown"

_PLUGINS = {
    "empty_dir": "kubernetes.io/empty-dir",
    "host_path": "kubernetes.io/host-path",
    "downward_api": "kubernetes.io/downward-api",
    "projected": "kubernetes.io/projected",
    "config_map": "kubernetes.io/configmap",
    "secret": "kubernetes.io/secret",
    "image": "kubernetes.io/image",
}
_BEHIND_CLAIMS = {
    "local": "kubernetes.io/local-volume",
    "hostPath": "kubernetes.io/host-path",
}


class VolumeOperation(msgspec.Struct, frozen=True):
    """One finished volume operation.

    `plugin`: see `plugin_of`; empty for a tear-down. `operation`: `MOUNT` or `UNMOUNT`. `outcome`: `SUCCESS` or
    `FAILURE`.
    """

    plugin: str
    operation: str
    outcome: str
    seconds: float


class Operations(list[VolumeOperation]):
    """List of the volume operations of one call of `VolumePreparer`, in the order in which they ended."""

    @contextmanager
    def timed(self, plugin: str, operation: str) -> Iterator[None]:
        """Time the block and append the operation; an exception counts as a failure and is raised on."""
        began, outcome = time.perf_counter(), FAILURE
        try:
            yield
            outcome = SUCCESS
        finally:
            self.append(VolumeOperation(plugin, operation, outcome, time.perf_counter() - began))


class OperationCounts:
    """Totals of volume operations since the agent started.

    `durations`: histograms by plugin, operation and outcome.
    """

    def __init__(self) -> None:
        self.durations = LabelledDurations(BOUNDS)

    def add(self, operations: Operations) -> None:
        """Add finished operations to the totals."""
        for operation in operations:
            self.durations.add(operation.seconds, operation.plugin, operation.operation, operation.outcome)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of these counts."""
        labels = ("volume_plugin", "operation_name")
        yield histogram(
            "storage_operation_duration_seconds",
            "Duration of the set-up or tear-down of a volume.",
            lambda: [((*values, "false"), duration) for values, duration in self.durations.items()],
            *labels,
            "status",
            "migrated",
        )
        yield counter(
            "storage_operation_errors_total",
            "Number of set-ups and tear-downs of volumes that failed.",
            self._errors,
            *labels,
        )

    def _errors(self) -> Samples:
        errors: Counter[tuple[str, str]] = Counter()
        for (plugin, operation, outcome), duration in self.durations.items():
            errors[plugin, operation] += sum(duration.counts) if outcome != SUCCESS else 0
        return errors.items()


def plugin_of(pod: Pod, volume: Volume, objects: ObjectSet | None) -> str:
    """Return the kubelet's plugin name for a volume without a driver, such as ``kubernetes.io/secret``.

    For a claim it is the plugin of the persistent volume; empty if that is unknown. `objects`: see `SetUp.objects`.
    """
    kind = kind_of(volume)
    if kind not in ("persistent_volume_claim", "ephemeral"):
        return _PLUGINS.get(kind, kind)
    claimed = objects.claims.get(claim_of(pod, volume)) if objects is not None else None
    return _BEHIND_CLAIMS.get(getattr(claimed, "kind", ""), "")


def plugin_name(source: str, driver: str) -> str:
    """Return the kubelet's plugin name for a volume of a volume driver.

    `source`, `driver`: as in `VolumeRequest`. The plugin of a flexVolume has the name of its driver.
    """
    return driver if source == layout.FLEX_VOLUME else layout.source_directory(source).replace("~", "/")
