"""Resource requests and limits of a whole pod, for admission, the pod's cgroup and usage tables.

Regular containers run together, so their amounts are added. Init containers run one after the other, so only
the largest counts, plus the sidecars (init containers with restartPolicy Always) that started before it.
Sidecars continue to run, so they are added to the regular containers as well. The pod's amount is the larger
of the two sums. Pod-level resources replace it. Overhead is added last. Source: component-helpers resource
(KEP-753, KEP-2837).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from .text.quantity import Quantity, add, parse
from .types.core import Container, PodSpec, ResourceRequirements, VirtualMachine

Amounts: TypeAlias = dict[str, Quantity]
_Side: TypeAlias = Callable[[ResourceRequirements], Mapping[str, str]]


def workloads(spec: PodSpec) -> tuple[Container | VirtualMachine, ...]:
    """Return the regular containers, or the one machine: the units that run at the same time."""
    return spec.containers if spec.virtual_machine is None else (spec.virtual_machine,)


def is_sidecar(container: Container) -> bool:
    """Return True if an init container is a sidecar, which runs as long as the regular ones (restartPolicy Always)."""
    return container.restart_policy == "Always"


def effective_requests(spec: PodSpec) -> Amounts:
    """Return the requests of the whole pod with overhead, by resource name. Resources without a request are absent."""
    total = _total(spec, lambda resources: resources.requests)
    return _sum(total, _parsed(spec.overhead))


def container_requests(spec: PodSpec) -> Amounts:
    """Return the requests of all containers together, by resource name, without pod-level requests and overhead."""
    return _of_containers(spec, lambda resources: resources.requests)


def effective_limits(spec: PodSpec) -> Amounts:
    """Return the limits of the whole pod, by resource name.

    A resource is present if the pod itself or at least one container limits it. See `enforceable_limits` for
    limits that a cgroup can enforce.
    """
    total = _total(spec, lambda resources: resources.limits)
    overhead = _parsed(spec.overhead)
    return _sum(total, {name: amount for name, amount in overhead.items() if name in total})


def enforceable_limits(spec: PodSpec) -> Amounts:
    """Return the limits that hold for the whole pod, by resource name, so that a cgroup can enforce them.

    A resource is present if the pod itself limits it, or if every container does, init containers too. If one
    container has no memory limit and the pod itself has none, the pod has no memory limit.
    """
    limits = effective_limits(spec)
    everyone = [item.resources.limits for item in (*spec.init_containers, *workloads(spec))]
    pod_level = spec.resources.limits
    return {
        name: amount
        for name, amount in limits.items()
        if name in pod_level or all(name in of_one for of_one in everyone)
    }


def measured_limits(spec: PodSpec) -> tuple[int | None, int | None]:
    """Return the pod's limits of CPU, in millicores, and memory, in bytes, to show them beside its usage.

    None: without limit, or with a quantity that cannot be read, as a pod that the agent has rejected may have.
    """
    try:
        limits = enforceable_limits(spec)
    except ValueError:
        return None, None
    cpu, memory = limits.get("cpu"), limits.get("memory")
    return cpu.milli_value if cpu is not None else None, memory.value if memory is not None else None


def _total(spec: PodSpec, side: _Side) -> Amounts:
    return {**_of_containers(spec, side), **_parsed(side(spec.resources))}


def _of_containers(spec: PodSpec, side: _Side) -> Amounts:
    together: Amounts = {}
    for workload in workloads(spec):
        together = _sum(together, _parsed(side(workload.resources)))
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.init_containers:
        amounts = _parsed(side(container.resources))
        if is_sidecar(container):
            together, sidecars = _sum(together, amounts), _sum(sidecars, amounts)
            largest = _max(largest, sidecars)
        else:
            largest = _max(largest, _sum(sidecars, amounts))
    return _max(together, largest)


def _parsed(quantities: Mapping[str, str]) -> Amounts:
    return {name: parse(text) for name, text in quantities.items()}


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return {**a, **{name: add(a[name], amount) if name in a else amount for name, amount in b.items()}}


def _max(a: Amounts, b: Amounts) -> Amounts:
    return {
        **a,
        **{name: amount for name, amount in b.items() if name not in a or a[name].nanos < amount.nanos},
    }
