"""Size of a machine: vCPUs, CPU quota and memory, computed from the unit's resources. Pure."""

from __future__ import annotations

import msgspec

from kubeletx.api import InvalidPod, Machine, Resources, names

MIB = 1 << 20
PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
"""Minimum CPU quota that libvirt accepts, in microseconds."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """vCPUs, memory and CPU weight of a machine.

    `max_vcpus`, `max_memory_bytes`: limits of later resizes. `quota_us`: CPU time of each vCPU in
    `period_us`; None: no quota. `shares`: CPU weight; None: libvirt's default. `memory_is_default`: the spec
    has no memory limit, so `memory_bytes` is the configured default.
    """

    vcpus: int
    max_vcpus: int
    memory_bytes: int
    max_memory_bytes: int
    quota_us: int | None = None
    period_us: int = PERIOD_US
    shares: int | None = None
    memory_is_default: bool = False


def size_of(resources: Resources, machine: Machine, *, default_memory_bytes: int, max_vcpus: int) -> Size:
    """Compute the size of a machine from the unit's resources.

    The number of vCPUs is the CPU limit rounded up; a quota enforces the limit. Without a CPU limit it is the
    CPU request rounded up, without a quota; without either it is 1. Memory is the memory limit; without one
    it is `default_memory_bytes`. `max_vcpus`: maximum in the node's settings; InvalidPod is raised for more.
    """
    millicores = resources.cpu_limit_millicores
    if millicores is None and resources.cpu_quota_us and resources.cpu_quota_us > 0:
        millicores = resources.cpu_quota_us * 1000 // (resources.cpu_period_us or PERIOD_US)
    wanted = millicores or resources.cpu_request_millicores or 1000
    vcpus = max(1, -(-wanted // 1000))
    if vcpus > max_vcpus:
        raise InvalidPod(
            field="resources.limits[cpu]",
            problem=f"{vcpus} processors are more than the {max_vcpus} that a machine may have here",
            fix="ask for less, or raise maxVcpus of the libvirt plugin",
            reason=names.RUNTIME_UNSUPPORTED,
        )
    quota = None
    if millicores and millicores < vcpus * 1000:
        quota = max(MIN_QUOTA_US, millicores * PERIOD_US // 1000 // vcpus)
    memory = resources.memory_limit_bytes or default_memory_bytes
    memory = -(-memory // MIB) * MIB
    most = max(memory, -(-(machine.max_memory_bytes or 0) // MIB) * MIB)
    return Size(
        vcpus=vcpus,
        max_vcpus=max(vcpus, min(machine.max_vcpus or 0, max_vcpus)),
        memory_bytes=memory,
        max_memory_bytes=most,
        quota_us=quota,
        shares=resources.cpu_shares,
        memory_is_default=not resources.memory_limit_bytes,
    )


def check_maximums(size: Size, machine: Machine, *, max_vcpus: int) -> None:
    """Raise InvalidPod if the machine's own maximums are below its size or above the node's `max_vcpus`."""
    if machine.max_vcpus is not None and machine.max_vcpus > max_vcpus:
        raise _wrong_maximum(
            names.VM_MAX_CPUS,
            f"{machine.max_vcpus} processors are more than the {max_vcpus} that a machine may have here",
            "ask for less, or raise maxVcpus of the libvirt plugin",
        )
    if machine.max_vcpus is not None and machine.max_vcpus < size.vcpus:
        problem = (
            f"{machine.max_vcpus} processors are less than the {size.vcpus} that the machine starts with"
        )
        raise _wrong_maximum(names.VM_MAX_CPUS, problem, "raise it, or remove it")
    if machine.max_memory_bytes is not None and machine.max_memory_bytes < size.memory_bytes:
        has = "gets by default" if size.memory_is_default else "starts with"
        problem = (
            f"{machine.max_memory_bytes // MIB} MiB are less than the {size.memory_bytes // MIB} MiB that the "
            f"machine {has}"
        )
        raise _wrong_maximum(names.VM_MAX_MEMORY, problem, "raise it, or set a memory limit below it")


def _wrong_maximum(key: str, problem: str, fix: str) -> InvalidPod:
    field = f"metadata.annotations[{key}]"
    return InvalidPod(field=field, problem=problem, fix=fix, reason=names.RUNTIME_UNSUPPORTED)
