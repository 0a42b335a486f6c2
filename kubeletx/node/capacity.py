"""Computes the node's capacity, and the allocatable part of it, which pods may use.

Allocatable is the capacity minus what is reserved for the node's agents (kubeReserved), for the system
(systemReserved) and for the hard eviction thresholds. It is never below zero; the number of pods is not reduced.
Source: kubelet, pkg/kubelet/cm/node_container_manager_linux.go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text import quantity

from .cgroups.text import read_meminfo
from .thresholds import amount_of, is_off


class NodeResources(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of each resource of a node.

    `hugepages_bytes`: bytes in huge pages, by page size as Kubernetes writes it (2Mi, 1Gi).
    """

    cpu_millicores: int = 0
    memory_bytes: int = 0
    ephemeral_storage_bytes: int = 0
    pods: int = 0
    hugepages_bytes: dict[str, int] = {}


def read_capacity(
    root_dir: Path,
    *,
    max_pods: int,
    pods_per_core: int = 0,
    proc: Path = Path("/proc"),
    sys: Path = Path("/sys"),
) -> NodeResources:
    """Read the node's capacity from the kernel.

    `root_dir`: the agent's root directory, whose file system is the ephemeral storage. The number of pods is
    `max_pods`, or `pods_per_core` for each processor if that is less; `pods_per_core` 0: no such limit.
    """
    cores = os.cpu_count() or 1
    disk = os.statvfs(root_dir)
    return NodeResources(
        cpu_millicores=cores * 1000,
        memory_bytes=read_meminfo(proc / "meminfo").get("MemTotal", 0),
        ephemeral_storage_bytes=disk.f_blocks * disk.f_frsize,
        pods=min(max_pods, pods_per_core * cores) if pods_per_core else max_pods,
        hugepages_bytes=_hugepages(sys / "kernel/mm/hugepages"),
    )


def allocatable(
    capacity: NodeResources,
    *,
    kube_reserved: Mapping[str, str] | None = None,
    system_reserved: Mapping[str, str] | None = None,
    hard_eviction: Mapping[str, str] | None = None,
) -> NodeResources:
    """Return the resources that pods may use: the capacity minus reserved amounts and hard eviction thresholds.

    `kube_reserved`, `system_reserved`: quantities by resource name. `hard_eviction`: threshold by eviction signal, a
    quantity or a percentage of the capacity. Huge pages are subtracted from the memory. Raises InvalidConfig.
    """
    cpu, memory, disk = capacity.cpu_millicores, capacity.memory_bytes, capacity.ephemeral_storage_bytes
    for field, reserved in (("kubeReserved", kube_reserved), ("systemReserved", system_reserved)):
        for name, text in (reserved or {}).items():
            amount = _amount(field, name, text)
            match name:
                case "cpu":
                    cpu -= amount.milli_value
                case "memory":
                    memory -= amount.value
                case "ephemeral-storage":
                    disk -= amount.value
    thresholds = hard_eviction or {}
    memory -= _threshold(thresholds, "memory.available", capacity.memory_bytes)
    disk -= _threshold(thresholds, "nodefs.available", capacity.ephemeral_storage_bytes)
    memory -= sum(capacity.hugepages_bytes.values())
    return NodeResources(
        cpu_millicores=max(0, cpu),
        memory_bytes=max(0, memory),
        ephemeral_storage_bytes=max(0, disk),
        pods=capacity.pods,
        hugepages_bytes=capacity.hugepages_bytes,
    )


def resource_list(resources: NodeResources) -> dict[str, str]:
    """Convert the resources to quantities by name, for the fields `capacity` and `allocatable` of a Node."""
    cpu, rest = divmod(resources.cpu_millicores, 1000)
    return {
        "cpu": f"{resources.cpu_millicores}m" if rest else str(cpu),
        "memory": f"{resources.memory_bytes // 1024}Ki",
        "ephemeral-storage": f"{resources.ephemeral_storage_bytes // 1024}Ki",
        "pods": str(resources.pods),
        **{
            f"hugepages-{size}": quantity.from_bytes(count)
            for size, count in sorted(resources.hugepages_bytes.items())
        },
    }


def missing_resources(capacity: NodeResources) -> tuple[str, ...]:
    """Return which of cpu, memory, pods and ephemeral-storage have capacity zero; if one has, Ready is False."""
    amounts = {
        "cpu": capacity.cpu_millicores,
        "memory": capacity.memory_bytes,
        "pods": capacity.pods,
        "ephemeral-storage": capacity.ephemeral_storage_bytes,
    }
    return tuple(name for name, amount in amounts.items() if amount <= 0)


def _hugepages(directory: Path) -> dict[str, int]:
    sizes = {}
    for entry in sorted(directory.glob("hugepages-*kB")):
        kilobytes = int(entry.name.removeprefix("hugepages-").removesuffix("kB"))
        try:
            count = int((entry / "nr_hugepages").read_text())
        except (OSError, ValueError):  # a page size that this kernel does not report
            continue
        sizes[quantity.from_bytes(kilobytes * 1024)] = count * kilobytes * 1024
    return sizes


def _amount(field: str, name: str, text: str) -> quantity.Quantity:
    try:
        return quantity.parse(text)
    except ValueError as error:
        raise InvalidConfig(
            field=f"{field}.{name}", problem=f"{text!r} {error}", fix="write it as 200m or 1Gi"
        ) from None


def _threshold(thresholds: Mapping[str, str], signal: str, capacity: int) -> int:
    text = thresholds.get(signal, "")
    try:
        return 0 if is_off(text) else amount_of(text, capacity)
    except ValueError as error:
        raise InvalidConfig(
            field=f"evictionHard.{signal}", problem=f"{text!r} {error}", fix="write 100Mi or 10%"
        ) from None
