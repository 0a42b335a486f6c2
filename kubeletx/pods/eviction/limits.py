"""Disk limits of single pods, enforced even if the node is not under pressure (X3 in docs/kubelet-parity.md). Pure.

They are checked in this order: sizeLimit of emptyDir volumes, then the pod's ephemeral storage, then each container's.
Usage that was not measured never exceeds a limit. Memory-backed volumes are not checked, since the kernel limits them.
Ephemeral storage of machines is not checked, since their root disks have a fixed size. The messages are the
kubelet's. Source: kubelet, pkg/kubelet/eviction/eviction_manager.go, localStorageEviction, and helpers.go.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeletx.kube.requests import effective_limits
from kubeletx.kube.text import quantity
from kubeletx.kube.types.core import Pod

from ..model.roles import init_units, regular_units
from .rank import EPHEMERAL_STORAGE
from .use import DiskPart, PodUse


def has_limits(pod: Pod) -> bool:
    """Return True if the pod has a sizeLimit of an emptyDir on disk, or a limit of ephemeral storage."""
    return bool(empty_dir_limits(pod)) or has_storage_limits(pod)


def has_storage_limits(pod: Pod) -> bool:
    """Return True if the pod has a limit of ephemeral storage; its usage includes the containers' writable layers."""
    return EPHEMERAL_STORAGE in effective_limits(pod.spec)


def empty_dir_limits(pod: Pod) -> dict[str, str]:
    """Return the sizeLimit of each emptyDir volume on disk that has one, by volume name."""
    return {
        volume.name: volume.empty_dir.size_limit
        for volume in pod.spec.volumes
        if volume.empty_dir is not None
        and volume.empty_dir.size_limit
        and volume.empty_dir.medium != "Memory"
        and quantity.to_bytes(volume.empty_dir.size_limit) > 0
    }


class Exceeded(NamedTuple):
    """A limit of the pod that its usage exceeds. `signal`: the kubelet's name for it in metrics."""

    signal: str
    message: str


def exceeded(use: PodUse) -> Exceeded | None:
    """Return the first limit that the pod exceeds; None if it exceeds none or is critical and never evicted."""
    if use.is_critical:
        return None
    return _volumes(use) or (None if use.has_own_disk else _pod(use) or _containers(use))


def _volumes(use: PodUse) -> Exceeded | None:
    for name, limit in empty_dir_limits(use.pod).items():
        used = use.volumes.get(name)
        if used is not None and used.bytes > quantity.to_bytes(limit):
            text = f'Usage of EmptyDir volume "{name}" exceeds the limit "{quantity.canonical(limit)}". '
            return Exceeded("emptydirfs.limit", text)
    return None


def _pod(use: PodUse) -> Exceeded | None:
    limit = effective_limits(use.pod.spec).get(EPHEMERAL_STORAGE)
    used = use.disk(frozenset(DiskPart))
    if limit is None or used is None or used.bytes <= limit.value:
        return None
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return Exceeded("ephemeralpodfs.limit", text)


def _containers(use: PodUse) -> Exceeded | None:
    limits = {
        unit.name: unit.resources.limits.get(EPHEMERAL_STORAGE)
        for unit in (*init_units(use.pod), *regular_units(use.pod))
    }
    for container in use.containers:
        limit = limits.get(container.name)
        used = sum(part.bytes for part in (container.rootfs, container.logs) if part is not None)
        if limit and 0 < quantity.to_bytes(limit) < used:
            shown = quantity.canonical(limit)
            text = f'Container {container.name} exceeded its local ephemeral storage limit "{shown}". '
            return Exceeded("ephemeralcontainerfs.limit", text)
    return None
