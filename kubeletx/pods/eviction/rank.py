"""Order of evictions when a threshold is met. Pure.

    memory           uses more than it requests → lower priority → uses more above its request
    disk, inodes     the same, by its data on the disk that is short
    process ids      lower priority → more processes

An unmeasured pod comes after all others: it may not be the cause. (The kubelet evicts such a pod first;
it has one runtime for all pods, while here a slow runtime must not cost its pods.)
Source: kubelet, pkg/kubelet/eviction/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeletx.kube.requests import effective_requests
from kubeletx.node.thresholds import MEMORY, NODE, PIDS, Met

from .use import DiskPart, PodUse

EPHEMERAL_STORAGE: Final = "ephemeral-storage"
INODES: Final = "inodes"


def resource_of(signal: str) -> str:
    """The resource that a signal is about, as messages name it."""
    if signal == MEMORY:
        return "memory"
    if signal == PIDS:
        return "pids"
    return INODES if signal.endswith("inodesFree") else EPHEMERAL_STORAGE


def is_disk(signal: str) -> bool:
    """Return True if the signal is about a disk, so that removing images and dead containers may help first."""
    return resource_of(signal) in (EPHEMERAL_STORAGE, INODES)


def is_concerned(use: PodUse, met: Met) -> bool:
    """Return True if ending the pod could help. The pressure of a store concerns only the pods of its runtimes."""
    if not met.threshold.signal.startswith(("imagefs.", "containerfs.")):
        return True
    return use.image_place == met.observation.place


def parts_of(use: PodUse, met: Met) -> frozenset[DiskPart]:
    """Parts of the pod's data on the disk under pressure."""
    if met.observation.place != NODE:
        return frozenset({DiskPart.ROOTFS})
    if use.image_place == NODE:
        return frozenset(DiskPart)
    return frozenset({DiskPart.LOGS, DiskPart.VOLUMES})


def rank(uses: Iterable[PodUse], met: Met) -> list[PodUse]:
    """The pods that may be ended for this threshold, in the order of eviction."""
    able = [use for use in uses if not use.is_critical and is_concerned(use, met)]
    if met.threshold.signal == PIDS:
        return sorted(able, key=lambda use: (use.priority, -(use.pids or 0), use.uid))
    return sorted(able, key=lambda use: _by_usage(use, met))


def usage(use: PodUse, met: Met) -> int | None:
    """The pod's usage of the resource that is short, in bytes or numbers; None if not measured."""
    resource = resource_of(met.threshold.signal)
    if resource == "memory":
        return use.memory_bytes
    if resource == "pids":
        return use.pids
    disk = use.disk(parts_of(use, met))
    if disk is None:
        return None
    return disk.inodes if resource == INODES else disk.bytes


def _by_usage(use: PodUse, met: Met) -> tuple[int, int, int, str]:
    used = usage(use, met)
    if used is None:
        return (2, use.priority, 0, use.uid)
    amount = effective_requests(use.pod.spec).get(resource_of(met.threshold.signal))
    above = used - (amount.value if amount is not None else 0)
    return (0 if above > 0 else 1, use.priority, -above, use.uid)
