"""Messages of evictions, exactly as the kubelet writes them (pkg/kubelet/eviction/helpers.go). Pure."""

from __future__ import annotations

from kubeletx.kube.text import quantity
from kubeletx.node.thresholds import MetThreshold

from ..model.roles import init_units, regular_units
from .rank import EPHEMERAL_STORAGE, resource_of
from .use import ContainerUse, PodUse


def low_on(met: MetThreshold, use: PodUse) -> str:
    """Return the message for a pod that is evicted because this threshold is met."""
    resource, seen = resource_of(met.threshold.signal), met.observation
    wanted = amount(resource, met.threshold.value(seen.capacity))
    text = f"The node was low on resource: {resource}. "
    text += f"Threshold quantity: {wanted}, available: {amount(resource, seen.available)}. "
    requests = {one.name: one.resources.requests for one in (*init_units(use.pod), *regular_units(use.pod))}
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


def empty_dir_over(volume: str, limit: str) -> str:
    """Return the message for an emptyDir volume larger than its sizeLimit."""
    return f'Usage of EmptyDir volume "{volume}" exceeds the limit "{limit}". '


def container_over(container: str, limit: str) -> str:
    """Return the message for a container above its limit of ephemeral storage."""
    return f'Container {container} exceeded its local ephemeral storage limit "{limit}". '


def pod_over(limit: str) -> str:
    """Return the message for a pod above the sum of its containers' limits of ephemeral storage."""
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "


def amount(resource: str, value: int) -> str:
    """Format an amount of this resource: memory and ephemeral-storage like ``1Mi``, others as plain numbers."""
    return quantity.from_bytes(value) if resource in ("memory", EPHEMERAL_STORAGE) else str(value)


def _used(container: ContainerUse, resource: str) -> int | None:
    if resource == "memory":
        return container.memory_bytes
    if resource != EPHEMERAL_STORAGE or container.rootfs is None or container.logs is None:
        return None
    return container.rootfs.bytes + container.logs.bytes
