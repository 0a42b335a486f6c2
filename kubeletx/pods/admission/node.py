"""Inputs of admission: the node, and the resources that pods use on it."""

from __future__ import annotations

from typing import NamedTuple

from kubeletx.api import PodUid, Traits
from kubeletx.kube.qos import BEST_EFFORT, qos_class
from kubeletx.kube.requests import effective_requests
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Taint

from ..model.facts import Fact
from ..model.priority import is_critical
from ..model.roles import sidecars
from ..model.sources import SourceTraits

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"


ANY_ADDRESSES = ("", "0.0.0.0", "::")


class HostPort(NamedTuple):
    """A port that a pod publishes on the node. `address`: IP address of the node; empty for all its addresses."""

    protocol: str
    address: str
    port: int


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars; with hostNetwork, every container port is one."""
    ports = []
    for container in (*pod.spec.containers, *sidecars(pod)):
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                address = port.host_ip or ""
                ports.append(
                    HostPort(port.protocol or "TCP", "" if address in ANY_ADDRESSES else address, number)
                )
    return tuple(ports)


def ports_conflict(a: HostPort, b: HostPort) -> bool:
    """Return True if two pods cannot publish these ports on one node."""
    if (a.protocol, a.port) != (b.protocol, b.port):
        return False
    return a.address == b.address or not a.address or not b.address


class AdmissionNode(Fact, frozen=True, kw_only=True):
    """The node as admission sees it: its resources, labels, taints and kernel features.

    `allocatable`: amount by resource name; CPU in millicores, everything else in whole units (bytes, numbers). If cpu,
    memory or ephemeral-storage is missing, it is not limited. `labels` include kubernetes.io/os and
    kubernetes.io/hostname.
    """

    name: str
    allocatable: dict[str, int] = {}
    max_pods: int = 110
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Taints of the Node object; a pod from a scheduler must tolerate every taint with effect NoExecute."""
    operating_system: str = "linux"
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names of sysctls; a name that ends in ``*`` matches every sysctl with this prefix."""
    has_apparmor: bool = True
    has_seccomp: bool = True
    has_user_namespaces: bool = True
    has_strict_groups: bool = True
    """True if the pod's runtime supports supplementalGroupsPolicy Strict."""


class Taken(Fact, frozen=True, kw_only=True):
    """Resources that one pod uses on the node: host ports, and amounts in the units of `AdmissionNode.allocatable`.

    `ref`: the pod's namespace/name. `qos`: its QoS class.
    """

    uid: PodUid
    ref: str
    amounts: dict[str, int] = {}
    ports: tuple[HostPort, ...] = ()
    qos: str = BEST_EFFORT
    is_critical: bool = False
    """True: the pod may preempt others, and only a critical pod of higher priority can preempt it."""
    priority: int | None = None
    """spec.priority; None if the spec has none. Such a pod is neither above nor below any other critical pod."""


def taken_by(pod: Pod, source: SourceTraits, traits: Traits | None) -> Taken | None:
    """Return the resources that the pod uses on this node; None if its runtime is on another machine.

    `traits`: traits of the pod's runtime; None if unknown: the runtime then counts as local and without overhead.
    The runtime's own overhead is added for pods of node-local sources whose spec declares no overhead. It is not added
    for pods of a cluster: the scheduler did not count it, so it must not cause a rejection here.
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
    """Resources that several pods use together: sum of the amounts by resource name, number of pods, host ports."""

    amounts: dict[str, int] = {}
    pods: int = 0
    ports: tuple[tuple[HostPort, str], ...] = ()
    """Each used host port with the namespace/name of its pod."""
