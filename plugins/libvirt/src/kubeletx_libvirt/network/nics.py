"""Converts the pod's ``vpc`` and ``nics`` to the guest's links. Pure.

The network of an interface is the first of these that is set: its ``portId`` in the table ``ports``, its
``subnetName`` in ``networks``, the pod's ``vpc`` in ``networks``, the pod network. The pod network assigns
one address to a pod, so only one interface can be on it. If no interface is on it, one is added, since
status.podIP, probes and ports need it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Literal

import msgspec

from kubeletx.api import InvalidPod, Machine, Nic, names
from kubeletx.api.specs import Dns, Spec

from ..config import NetworkTarget, PortEntry
from .links import GuestLink, LinkKind
from .names import stable_mac

POD_NETWORK = NetworkTarget()


class Resolved(Spec, frozen=True, kw_only=True):
    """Result of `resolve_nics`.

    `links`: in the order of the guest's interfaces. `warnings`: messages for Warning events.
    """

    links: tuple[GuestLink, ...]
    warnings: tuple[str, ...] = ()


def resolve_nics(
    machine: Machine,
    pod_link: GuestLink,
    *,
    networks: Mapping[str, NetworkTarget],
    ports: Mapping[str, PortEntry],
    unknown: Literal["warn", "refuse"] = "warn",
    uid: str,
) -> Resolved:
    """Convert the machine's ``vpc`` and ``nics`` to all links of the guest.

    `pod_link`: the pod's link to the pod network. `networks`, `ports`: the operator's tables. `unknown`: a
    vpc or port id that is not in the tables causes a warning or InvalidPod. `uid`: the pod's UID, for stable
    MAC addresses. Raises InvalidPod with the field and a permanent reason.
    """
    tables = _Tables(networks, ports, unknown)
    vpc = tables.vpc(machine.vpc)
    links: list[GuestLink] = []
    # A vpc other than the pod network needs an interface, also if the pod lists none.
    nics = machine.nics or (() if vpc.is_pod_network else (Nic(name="eth1"),))
    for index, nic in enumerate(nics):
        link = _link(f"spec.nics[{index}]", nic, vpc, pod_link, tables, uid)
        if link.source == pod_link.source and any(earlier.source == link.source for earlier in links):
            raise _refusal(
                field=f"spec.nics[{index}]",
                problem="a second interface on the pod network, which gives a pod one address",
                fix="name another network in subnetName",
            )
        links.append(link)
    if not any(link.source == pod_link.source for link in links):
        taken = {link.name for link in links}
        name = next(name for name in (f"eth{n}" for n in range(len(taken) + 1)) if name not in taken)
        pod_link = msgspec.structs.replace(pod_link, name=name)
        links = [pod_link, *links] if name == "eth0" else [*links, pod_link]
    return Resolved(links=tuple(links), warnings=tuple(tables.warnings))


class _Tables:
    """The operator's tables, with warnings about names that were not found in them."""

    def __init__(
        self, networks: Mapping[str, NetworkTarget], ports: Mapping[str, PortEntry], unknown: str
    ) -> None:
        self.networks = networks
        self.ports = ports
        self.unknown = unknown
        self.warnings: list[str] = []

    def vpc(self, name: str) -> NetworkTarget:
        if not name:
            return POD_NETWORK
        target = self.networks.get(name)
        if target is None:
            self._missing("spec.vpc", name, "networks", "its interfaces join the node's pod network")
        return target or POD_NETWORK

    def port(self, field: str, port_id: str) -> PortEntry | None:
        entry = self.ports.get(port_id)
        if entry is None:
            self._missing(
                f"{field}.portId", port_id, "ports", "the interface gets a stable MAC address of its own"
            )
        return entry

    def named(self, field: str, name: str) -> NetworkTarget:
        target = self.networks.get(name)
        if target is None:
            known = ", ".join(sorted(self.networks)) or "none"
            raise _refusal(
                field=field,
                problem=f"{name!r} is not in libvirt.networks of this node",
                fix=f"use one of: {known}",
            )
        return target

    def _missing(self, field: str, name: str, table: str, instead: str) -> None:
        problem = f"{name!r} is not in libvirt.{table} of this node"
        if self.unknown == "refuse":
            raise _refusal(field=field, problem=problem, fix="add it there, or set unknownNetwork: warn")
        self.warnings.append(f"{field}: {problem}; {instead}")


def _link(
    field: str, nic: Nic, vpc: NetworkTarget, pod_link: GuestLink, tables: _Tables, uid: str
) -> GuestLink:
    port = tables.port(field, nic.port_id) if nic.port_id else None
    address = nic.ip_address
    target = vpc
    if nic.network:
        target = tables.named(f"{field}.subnetName", nic.network)
    if port is not None:
        target = POD_NETWORK if port.network is None else tables.named(f"{field}.portId", port.network)
        if port.ip_address and address and port.ip_address != address:
            raise _refusal(
                field=f"{field}.ipAddress",
                problem=f"{address} is not the address of port {nic.port_id}, which is {port.ip_address}",
                fix="remove one of the two",
            )
        address = address or port.ip_address or ""
    mac = port.mac.lower() if port is not None and port.mac else ""
    if nic.port_id and not mac:
        mac = stable_mac("port", nic.port_id)
    if target.is_pod_network:
        return _on_pod_network(field, nic, pod_link, address, mac)
    return _on_target(field, nic, target, address, mac or stable_mac("nic", uid, nic.name))


def _on_pod_network(field: str, nic: Nic, pod_link: GuestLink, address: str, mac: str) -> GuestLink:
    if address and ipaddress.ip_address(address) not in map(ipaddress.ip_address, pod_link.ips):
        raise _refusal(
            field=f"{field}.ipAddress",
            problem=f"{address} cannot be had: the pod network gave {', '.join(pod_link.ips) or 'none'}",
            fix="remove it, or name a network of libvirt.networks in subnetName",
        )
    if nic.ipv6 and not pod_link.ipv6:
        raise _refusal(
            field=f"{field}.ipv6Enabled",
            problem="the pod network gives no IPv6 address",
            fix="remove it, or add an IPv6 range to the CNI configuration",
        )
    return msgspec.structs.replace(pod_link, name=nic.name, mac=mac or pod_link.mac, tag=nic.tag)


def _on_target(field: str, nic: Nic, target: NetworkTarget, address: str, mac: str) -> GuestLink:
    return GuestLink(
        name=nic.name,
        kind=LinkKind.BRIDGE if target.bridge else LinkKind.NETWORK,
        source=target.bridge or target.network or "",
        mac=mac,
        addresses=(_in_subnet(field, target, address),) if address else (),
        routes=target.routes if address else (),
        dns=Dns(servers=target.dns) if target.dns else None,
        mtu=target.mtu or 0,
        dhcp=not address,
        ipv6=nic.ipv6,
        tag=nic.tag,
    )


def _in_subnet(field: str, target: NetworkTarget, address: str) -> str:
    where = target.bridge or target.network
    if target.subnet is None:
        raise _refusal(
            field=f"{field}.ipAddress",
            problem=f"{address} cannot be used: libvirt.networks has no subnet for {where}",
            fix="remove it, or add the subnet there",
        )
    subnet = ipaddress.ip_network(target.subnet, strict=False)
    parsed = ipaddress.ip_address(address)
    if parsed not in subnet:
        raise _refusal(
            field=f"{field}.ipAddress",
            problem=f"{address} is not in {subnet}, the subnet of {where}",
            fix="choose an address of it",
        )
    is_block = subnet.version == 4 and subnet.prefixlen < 31
    if is_block and parsed in (subnet.network_address, subnet.broadcast_address):
        raise _refusal(
            field=f"{field}.ipAddress",
            problem=f"{address} is the first or last of {subnet}, which no machine can have",
            fix="choose an address between them",
        )
    return f"{address}/{subnet.prefixlen}"


def _refusal(*, field: str, problem: str, fix: str) -> InvalidPod:
    """Return a permanent refusal: only another spec or other settings help.

    See DECISIONS 5 in docs/decisions/answers.md.
    """
    return InvalidPod(field=field, problem=problem, fix=fix, reason=names.RUNTIME_UNSUPPORTED)
