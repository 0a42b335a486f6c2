"""Inputs of admission: the node, and the resources that pods take of it."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api import PodUid, Traits
from kubeletx.kube.qos import BEST_EFFORT, qos_class
from kubeletx.kube.requests import effective_requests
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Taint

from ..model.facts import Fact
from ..model.priority import is_critical
from ..model.sources import SourceTraits
from .host_ports import HostPort, host_ports_of

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"


class AdmissionNode(Fact, frozen=True, kw_only=True):
    """The node that pods are admitted to.

    `allocatable`: by resource name; CPU in millicores, all else in whole units. A missing cpu, memory or
    ephemeral-storage is not limited. `labels` include kubernetes.io/os and kubernetes.io/hostname.
    """

    name: str
    allocatable: dict[str, int] = {}
    max_pods: int = 110
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Taints in the cluster; a cluster's pod must tolerate those with effect NoExecute."""
    operating_system: str = "linux"
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names of sysctls; a name that ends in ``*`` matches every sysctl with this prefix."""
    has_apparmor: bool = True
    has_seccomp: bool = True
    has_user_namespaces: bool = True
    has_strict_groups: bool = True
    """True if the pod's runtime supports supplementalGroupsPolicy Strict."""


class Taken(Fact, frozen=True, kw_only=True):
    """Resources that one pod takes of the node: amounts as in `AdmissionNode.allocatable`, and host ports."""

    uid: PodUid
    ref: str
    amounts: dict[str, int] = {}
    ports: tuple[HostPort, ...] = ()
    qos: str = BEST_EFFORT
    is_critical: bool = False
    """True: only a critical pod of higher priority preempts it, and it may preempt others."""
    priority: int | None = None
    """spec.priority; None for static pods without one, whose priorities are not compared."""


def taken_by(pod: Pod, source: SourceTraits, traits: Traits | None) -> Taken | None:
    """Resources the pod takes of this node; None if it runs on another machine.

    The runtime's own overhead is added for pods of node-local sources that declare none. It is not added for pods of a
    cluster: its scheduler did not count it, so it must not cause a rejection here.
    """
    if traits is not None and traits.remote:
        return None
    amounts = {
        name: quantity.milli_value if name == CPU else quantity.value
        for name, quantity in effective_requests(pod.spec).items()
    }
    if traits is not None and source.counts_overhead and not pod.spec.overhead:
        for name, more in ((CPU, traits.cpu_overhead_millicores), (MEMORY, traits.memory_overhead_bytes)):
            if more:
                amounts[name] = amounts.get(name, 0) + more
    return Taken(
        uid=pod.uid,
        ref=pod.ref,
        amounts=amounts,
        ports=host_ports_of(pod),
        qos=qos_class(pod.spec),
        is_critical=is_critical(pod, source),
        priority=pod.spec.priority,
    )


class Occupancy(Fact, frozen=True, kw_only=True):
    """Resources that all pods take together: sums of `amounts`, the number of pods, and the holder of each port."""

    amounts: dict[str, int] = {}
    pods: int = 0
    ports: tuple[tuple[HostPort, str], ...] = ()
    """(port, namespace/name of the pod that holds it)."""


def occupancy_of(pods: Iterable[Taken]) -> Occupancy:
    """Sum up the resources that these pods take."""
    amounts: dict[str, int] = {}
    ports: list[tuple[HostPort, str]] = []
    number = 0
    for taken in pods:
        number += 1
        ports += [(port, taken.ref) for port in taken.ports]
        for name, amount in taken.amounts.items():
            amounts[name] = amounts.get(name, 0) + amount
    return Occupancy(amounts=amounts, pods=number, ports=tuple(ports))
