"""Order of evictions when a threshold is met. Pure.

    memory           first pods that use more than they request; then by lower priority; then by usage above the request
    disk, inodes     the same, with the pod's data on the disk that is short
    process ids      first by lower priority; then by number of processes

A pod that was not measured comes after all others, since it may not be the cause. (The kubelet evicts such a pod first.
It has one runtime for all pods; here, pods must not be evicted because their runtime is slow.)
Source: kubelet, pkg/kubelet/eviction/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeletx.kube.requests import effective_requests
from kubeletx.kube.text import quantity
from kubeletx.node.thresholds import MEMORY, NODE, PIDS, MetThreshold

from ..model.roles import init_units, regular_units
from .use import ContainerUse, DiskPart, PodUse

EPHEMERAL_STORAGE: Final = "ephemeral-storage"
INODES: Final = "inodes"


def resource_of(signal: str) -> str:
    """Return the resource of an eviction signal, as used in messages: memory, pids, inodes or ephemeral-storage."""
    if signal == MEMORY:
        return "memory"
    if signal == PIDS:
        return "pids"
    return INODES if signal.endswith("inodesFree") else EPHEMERAL_STORAGE


def is_disk(signal: str) -> bool:
    """Return True if the signal is about a disk, so that removing images and dead containers may help first."""
    return resource_of(signal) in (EPHEMERAL_STORAGE, INODES)


def is_concerned(use: PodUse, met: MetThreshold) -> bool:
    """Return True if ending the pod could relieve the pressure.

    Pressure on the disk of an image store concerns only pods whose runtime uses that disk.
    """
    if not met.threshold.signal.startswith(("imagefs.", "containerfs.")):
        return True
    return use.image_place == met.observation.place


def parts_of(use: PodUse, met: MetThreshold) -> frozenset[DiskPart]:
    """Return the parts of the pod's data that are on the disk under pressure."""
    if met.observation.place != NODE:
        return frozenset({DiskPart.ROOTFS})
    if use.image_place == NODE:
        return frozenset(DiskPart)
    return frozenset({DiskPart.LOGS, DiskPart.VOLUMES})


def rank(uses: Iterable[PodUse], met: MetThreshold) -> list[PodUse]:
    """Return the pods that may be ended for this threshold, in the order of eviction."""
    able = [use for use in uses if not use.is_critical and is_concerned(use, met)]
    if met.threshold.signal == PIDS:
        return sorted(able, key=lambda use: (use.priority, -(use.pids or 0), use.uid))
    return sorted(able, key=lambda use: _by_usage(use, met))


def usage(use: PodUse, met: MetThreshold) -> int | None:
    """Return the pod's usage of the resource that is short; None if it was not measured.

    The unit is bytes, or the number of inodes or processes.
    """
    resource = resource_of(met.threshold.signal)
    if resource == "memory":
        return use.memory_bytes
    if resource == "pids":
        return use.pids
    disk = use.disk(parts_of(use, met))
    if disk is None:
        return None
    return disk.inodes if resource == INODES else disk.bytes


def _by_usage(use: PodUse, met: MetThreshold) -> tuple[int, int, int, str]:
    used = usage(use, met)
    if used is None:
        return (2, use.priority, 0, use.uid)
    amount = effective_requests(use.pod.spec).get(resource_of(met.threshold.signal))
    above = used - (amount.value if amount is not None else 0)
    return (0 if above > 0 else 1, use.priority, -above, use.uid)


def low_on(met: MetThreshold, use: PodUse) -> str:
    """Return the message for a pod that is evicted because this threshold is met, exactly as the kubelet writes it."""
    resource, seen = resource_of(met.threshold.signal), met.observation
    wanted = amount(resource, met.threshold.value(seen.capacity))
    text = f"The node was low on resource: {resource}. "
    text += f"Threshold quantity: {wanted}, available: {amount(resource, seen.available)}. "
    requests = {
        unit.name: unit.resources.requests for unit in (*init_units(use.pod), *regular_units(use.pod))
    }
    for container in use.containers:
        used = _used(container, resource)
        if used is None or container.name not in requests:
            continue
        request = requests[container.name].get(resource, "0")
        if used > quantity.to_bytes(request):
            text += (
                f"Container {container.name} was using {amount(resource, used)}, request is "
                f"{quantity.canonical(request)}, has larger consumption of {resource}. "
            )
    return text


def amount(resource: str, value: int) -> str:
    """Format an amount of this resource: memory and ephemeral-storage like ``1Mi``, others as plain numbers."""
    return quantity.from_bytes(value) if resource in ("memory", EPHEMERAL_STORAGE) else str(value)


def _used(container: ContainerUse, resource: str) -> int | None:
    if resource == "memory":
        return container.memory_bytes
    if resource != EPHEMERAL_STORAGE or container.rootfs is None or container.logs is None:
        return None
    return container.rootfs.bytes + container.logs.bytes
