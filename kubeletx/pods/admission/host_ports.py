"""Check of host ports: two pods must not publish the same port of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubeletx.kube.types.core import Pod

from ..model.facts import Rejection
from ..model.roles import sidecars

ANY_ADDRESSES = ("", "0.0.0.0", "::")


class HostPort(NamedTuple):
    """A port that a pod publishes on the node. `address`: IP address of the node; empty for all its addresses."""

    protocol: str
    address: str
    port: int


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars; with hostNetwork, every container port is one."""
    found = []
    for container in (*pod.spec.containers, *sidecars(pod)):
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                address = port.host_ip or ""
                found.append(
                    HostPort(port.protocol or "TCP", "" if address in ANY_ADDRESSES else address, number)
                )
    return tuple(found)


def conflicts(a: HostPort, b: HostPort) -> bool:
    """Return True if two pods cannot publish these ports on one node."""
    if (a.protocol, a.port) != (b.protocol, b.port):
        return False
    return a.address == b.address or not a.address or not b.address


def check_host_ports(wanted: Sequence[HostPort], used: Sequence[tuple[HostPort, str]]) -> Rejection | None:
    """Reject the pod if another pod uses one of its ports; None if all are free.

    `used`: ports in use, each with the namespace/name of its pod.
    """
    for port in wanted:
        for other, owner in used:
            if conflicts(port, other):
                return Rejection(
                    reason="NodePorts",
                    message="Predicate NodePorts failed: node(s) didn't have free ports for the requested "
                    f"pod ports: {port.protocol} {port.port} is used by pod {owner}",
                )
    return None
