"""Converts requests and limits of containers and pods to cgroup settings and OOM scores.

See docs/kubelet-parity.md, rows R1 to R3. Sources: kubelet, pkg/kubelet/cm/helpers_linux.go (CPU),
kuberuntime_container_linux.go (memory, swap, huge pages), qos/policy.go (OOM score). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeletx.api import Resources
from kubeletx.kube.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from kubeletx.kube.requests import (
    container_requests,
    effective_limits,
    effective_requests,
    enforceable_limits,
    is_sidecar,
)
from kubeletx.kube.text.quantity import Quantity, parse, to_bytes, to_millicores
from kubeletx.kube.types.core import Container, Pod, PodUnit, ResourceRequirements

from ..model.node_context import NodeContext
from .host_facts import page_size_name

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
MIN_QUOTA_US: Final = 1000
GUARANTEED_OOM_SCORE: Final = -997
BEST_EFFORT_OOM_SCORE: Final = 1000
NODE_CRITICAL_CLASS: Final = "system-node-critical"
CRITICAL_PRIORITY: Final = 2_000_000_000


def unit_resources(pod: Pod, container: PodUnit, context: NodeContext) -> Resources:
    """Compute the resources of one container or machine.

    If it has no CPU or memory limit, the limit in the pod's `spec.resources` applies.
    """
    needs = container.resources
    cpu_request, memory_request = _request(needs, "cpu"), _request(needs, "memory")
    cpu_limit, memory_limit = (
        _limit(needs, name) or _limit(pod.spec.resources, name) for name in ("cpu", "memory")
    )
    with_quota = bool(cpu_limit) and context.cpu_cfs_quota
    unified = {}
    if context.cgroup_version == 2 and not context.single_process_oom_kill:
        unified["memory.oom.group"] = "1"
    if context.cgroup_version == 2 and context.swap_controller:
        unified["memory.swap.max"] = str(_swap_bytes(pod, memory_request, memory_limit, context))
    # cgroup v1 limits memory and swap together; equal to the memory limit means no swap.
    with_swap_limit = context.cgroup_version == 1 and context.swap_controller
    return Resources(
        cpu_shares=cpu_shares(cpu_request or cpu_limit or 0),
        cpu_period_us=context.cpu_cfs_quota_period_us if with_quota else None,
        cpu_quota_us=cpu_quota_us(cpu_limit, context.cpu_cfs_quota_period_us)
        if cpu_limit and with_quota
        else None,
        cpu_request_millicores=cpu_request,
        cpu_limit_millicores=cpu_limit,
        memory_request_bytes=memory_request,
        memory_limit_bytes=memory_limit,
        memory_swap_limit_bytes=memory_limit if with_swap_limit else None,
        ephemeral_storage_limit_bytes=_limit(needs, "ephemeral-storage"),
        oom_score_adj=oom_score_adj(pod, container, context.memory_capacity_bytes),
        hugepage_limits_bytes=_hugepages(needs, context),
        unified=unified,
    )


def sandbox_resources(pod: Pod, context: NodeContext) -> Resources:
    """Compute the resources of the whole pod without overhead, for runtimes that size a sandbox when they create it."""
    overhead = pod.spec.overhead
    return _pod_level(
        _without(effective_requests(pod.spec), overhead),
        _without(effective_limits(pod.spec), overhead),
        context,
    )


def overhead_resources(pod: Pod, context: NodeContext) -> Resources | None:
    """Return the pod's overhead (`spec.overhead`, from its runtime class) as resources; None if it has none."""
    overhead = pod.spec.overhead
    if not overhead:
        return None
    amounts = {name: _amount(name, text) for name, text in overhead.items()}
    return _from_amounts(amounts, amounts, context)


def pod_cgroup_resources(pod: Pod, context: NodeContext) -> Resources:
    """Compute the resources of the pod's cgroup.

    A resource is limited only if all containers have a limit for it (docs/kubelet-parity.md, row R4).
    """
    qos = qos_class(pod.spec)
    if qos == BEST_EFFORT:
        resources = Resources(cpu_shares=MIN_SHARES)
    else:
        limits = effective_limits(pod.spec) if qos == GUARANTEED else enforceable_limits(pod.spec)
        resources = _pod_level(effective_requests(pod.spec), limits, context)
    if context.pod_pids_limit > 0:
        changed = {name: getattr(resources, name) for name in resources.__struct_fields__}
        return Resources(**{**changed, "pids_limit": context.pod_pids_limit})
    return resources


def cpu_shares(millicores: int) -> int:
    """Convert a CPU request to CPU shares, its weight in the cgroup: 1024 per core, at least 2, at most 262144."""
    if millicores == 0:
        return MIN_SHARES
    return max(MIN_SHARES, min(MAX_SHARES, millicores * 1024 // 1000))


def cpu_quota_us(millicores: int, period_us: int) -> int:
    """Convert a CPU limit to microseconds of CPU time per period; at least 1000, the kernel's minimum."""
    return max(MIN_QUOTA_US, millicores * period_us // 1000)


def oom_score_adj(pod: Pod, container: PodUnit, memory_capacity_bytes: int) -> int:
    """Compute the container's oom_score_adj from the pod's QoS class and the container's memory request.

    `memory_capacity_bytes`: memory of the node; 0 if unknown.
    """
    qos = qos_class(pod.spec)
    if is_node_critical(pod) or qos == GUARANTEED:
        return GUARANTEED_OOM_SCORE
    if qos == BEST_EFFORT:
        return BEST_EFFORT_OOM_SCORE
    share = _share_of_pod_memory(pod)
    request = (_request(container.resources, "memory") or 0) + share
    if isinstance(container, Container) and is_sidecar(container) and _is_init(pod, container):
        # A sidecar must not die before the containers that it serves.
        regular = [_request(unit.resources, "memory") or 0 for unit in pod.spec.containers]
        request = max(request, min(regular, default=0) + share)
    part = 1000 * request // memory_capacity_bytes if memory_capacity_bytes else 0
    return max(1000 + GUARANTEED_OOM_SCORE, min(BEST_EFFORT_OOM_SCORE - 1, 1000 - part))


def _share_of_pod_memory(pod: Pod) -> int:
    """Return one container's equal share of the pod-level memory request that no container requests for itself."""
    whole = pod.spec.resources.requests.get("memory")
    if whole is None:
        return 0
    containers = container_requests(pod.spec).get("memory")
    left = to_bytes(whole) - (containers.value if containers is not None else 0)
    return left // max(len(pod.spec.containers) + len(pod.spec.init_containers), 1)


def is_node_critical(pod: Pod) -> bool:
    """Return True if the pod has priority class system-node-critical.

    A pod from the API server must also have at least priority 2000000000, so that the name of the class alone is not
    enough.
    """
    return pod.spec.priority_class_name == NODE_CRITICAL_CLASS and (
        (pod.spec.priority or 0) >= CRITICAL_PRIORITY
        or pod.metadata.annotations.get("kubernetes.io/config.source", "api") != "api"
    )


def _is_init(pod: Pod, container: Container) -> bool:
    return any(unit.name == container.name for unit in pod.spec.init_containers)


def _pod_level(
    requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], context: NodeContext
) -> Resources:
    return _from_amounts(_numbers(requests), _numbers(limits), context)


def _from_amounts(requests: Mapping[str, int], limits: Mapping[str, int], context: NodeContext) -> Resources:
    cpu_limit = limits.get("cpu", 0)
    with_quota = cpu_limit > 0 and context.cpu_cfs_quota
    return Resources(
        cpu_shares=cpu_shares(requests.get("cpu", 0)),
        cpu_period_us=context.cpu_cfs_quota_period_us if with_quota else None,
        cpu_quota_us=cpu_quota_us(cpu_limit, context.cpu_cfs_quota_period_us) if with_quota else None,
        cpu_request_millicores=requests.get("cpu"),
        cpu_limit_millicores=cpu_limit or None,
        memory_request_bytes=requests.get("memory"),
        memory_limit_bytes=limits.get("memory") or None,
        ephemeral_storage_limit_bytes=limits.get("ephemeral-storage") or None,
    )


def _numbers(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount.milli_value if name == "cpu" else amount.value for name, amount in amounts.items()}


def _without(amounts: Mapping[str, Quantity], overhead: Mapping[str, str]) -> dict[str, Quantity]:
    taken = {name: parse(text).nanos for name, text in overhead.items()}
    return {
        name: Quantity(amount.nanos - taken.get(name, 0), amount.format) for name, amount in amounts.items()
    }


def _amount(name: str, text: str) -> int:
    return to_millicores(text) if name == "cpu" else to_bytes(text)


def _limit(needs: ResourceRequirements, name: str) -> int | None:
    text = needs.limits.get(name)
    return None if text is None else _amount(name, text) or None


def _request(needs: ResourceRequirements, name: str) -> int | None:
    text = needs.requests.get(name, needs.limits.get(name))
    return None if text is None else _amount(name, text)


def _swap_bytes(pod: Pod, memory_request: int | None, memory_limit: int | None, context: NodeContext) -> int:
    """Return the bytes of swap that the container may use; 0 unless the node and the pod's QoS class allow swap."""
    may = (
        context.memory_swap == "LimitedSwap"
        and context.cgroup_version == 2
        and qos_class(pod.spec) == BURSTABLE
        and not is_node_critical(pod)
        and memory_request != memory_limit
    )
    if not may or not memory_request or not context.memory_capacity_bytes:
        return 0
    return memory_request * context.swap_capacity_bytes // context.memory_capacity_bytes


def _hugepages(needs: ResourceRequirements, context: NodeContext) -> dict[str, int]:
    limits = dict.fromkeys(context.hugepage_sizes, 0)
    for name, text in needs.limits.items():
        if name.startswith("hugepages-"):
            limits[page_size_name(to_bytes(name.removeprefix("hugepages-")))] = to_bytes(text)
    return limits
