"""Renders ``/metrics``, ``/metrics/probes`` and ``/metrics/slis``, and the metrics of the agent's own process.

Each object of the agent counts its own events and describes its numbers (`Metric`); only ``process_*`` and ``python_*``,
named as in Prometheus' client libraries, are measured here. Series that a kubelet has too have its names, labels and
kinds; only kubelet_runtime_operations_* have one more label, ``runtime``. Source: kubelet, pkg/kubelet/metrics,
prober/prober_manager.go; component-base, metrics/prometheus/restclient, metrics/slis, version; pkg/volume/util.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubeletx.api.counting import Metric
from kubeletx.kube.text.exposition import Family, family_of, labels_of
from kubeletx.kube.text.exposition import render as render_families
from kubeletx.linux.processes import TICKS_PER_SECOND, read_stat

from ..views import HealthView

_UNLIMITED = float(2**64 - 1)
_OF_PROBES = "prober_"


def process_metrics(proc: Path = Path("/proc")) -> Iterator[Family]:
    """Yield the metrics of this process; ``process_*`` are missing if a file of `proc` cannot be read."""
    for name, kind, text, value in _values(proc):
        family = Family(name, kind, text)
        family.add("", value)
        yield family
    yield from _interpreter()


def _interpreter() -> Iterator[Family]:
    generations = gc.get_stats()
    for name, key, text in (
        ("python_gc_objects_collected_total", "collected", "Objects collected by the garbage collector."),
        ("python_gc_objects_uncollectable_total", "uncollectable", "Objects that could not be collected."),
        ("python_gc_collections_total", "collections", "Collections of this generation."),
    ):
        family = Family(name, "counter", text)
        for number, stats in enumerate(generations):
            family.add(labels_of({"generation": str(number)}), stats[key])
        yield family
    info = Family("python_info", "gauge", "Version of Python.")
    version = {"implementation": platform.python_implementation(), "version": platform.python_version()}
    info.add(labels_of(version), 1)
    yield info


def _values(proc: Path) -> Iterator[tuple[str, str, str, float]]:
    try:
        booted = next(
            float(line.split()[1])
            for line in (proc / "stat").read_text().split("\n")
            if line.startswith("btime ")
        )
        descriptors = len(os.listdir(proc / "self/fd"))
        lines = (proc / "self/net/netstat").read_text().split("\n")
        names, values = (line.split() for line in lines if line.startswith("IpExt:"))
    except (OSError, StopIteration, ValueError):
        return
    if (stat := read_stat("self", proc)) is None:
        return
    traffic = dict(zip(names[1:], map(float, values[1:]), strict=True))
    yield "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", float(stat.virtual_bytes)
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    text = "Maximum amount of virtual memory available in bytes."
    yield "process_virtual_memory_max_bytes", "gauge", text, _UNLIMITED if most < 0 else float(most)
    yield (
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size in bytes.",
        float(stat.resident_bytes),
    )
    started = booted + stat.started_ticks / TICKS_PER_SECOND
    yield "process_start_time_seconds", "gauge", "Start time since unix epoch in seconds.", started
    spent = stat.cpu_ticks / TICKS_PER_SECOND
    yield "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", spent
    yield "process_open_fds", "gauge", "Number of open file descriptors.", float(descriptors)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_max_fds", "gauge", "Maximum number of open file descriptors.", float(limit)
    for way, key in (("receive", "InOctets"), ("transmit", "OutOctets")):
        text = f"Number of bytes that the process's network namespace did {way}."
        yield f"process_network_{way}_bytes_total", "counter", text, traffic.get(key, 0.0)


def render(metrics: Iterable[Metric]) -> bytes:
    """Render all metrics except probe metrics, then the ``process_*`` metrics of the agent's own process."""
    families = (family_of(metric, float) for metric in metrics if not metric.name.startswith(_OF_PROBES))
    return render_families(families) + render_families(process_metrics())


def render_probes(metrics: Iterable[Metric]) -> bytes:
    """Render the numbers of probe results and the durations of probes, of pods that still exist."""
    return render_families(family_of(metric, int) for metric in metrics if metric.name.startswith(_OF_PROBES))


def sli_metrics(health: HealthView) -> bytes:
    """Render the health of each part of the agent as a ``kubernetes_healthcheck`` sample: 1 if healthy, else 0."""
    family = Family("kubernetes_healthcheck", "gauge", "Result of the health checks.")
    family.add(labels_of({"name": "ping", "type": "healthz"}), 1)
    for part in health.parts:
        family.add(labels_of({"name": part.name, "type": "healthz"}), int(part.ok))
    return render_families([family])
