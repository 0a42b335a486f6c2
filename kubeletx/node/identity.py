"""The node's name and addresses.

The name is ``--hostname-override`` or the host's name, in lower case, as in the kubelet. The addresses are those of
``--node-ip``. If the operator gave none, the agent finds one address, as a kubelet does: the source address of the
default route of IPv4, else of IPv6, else any IPv4 address that is not loopback. It finds only one, since the cluster
may use only one address family. Nothing here sends a packet or queries a name server.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletx.api import InvalidConfig
from kubeletx.kube.types.node import NodeAddress

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ROUTE_PROBES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def node_name(override: str | None = None, *, hostname: str | None = None) -> str:
    """Return the node's name. Raises InvalidConfig if it is not a DNS name.

    `override`: value of ``--hostname-override``; None or blank: not set. `hostname`: the host's name, used without an
    override; None: ask the kernel.
    """
    chosen = override if override and override.strip() else (hostname or socket.gethostname())
    name = chosen.strip().lower()
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise InvalidConfig(
            field="--hostname-override" if override else "host name",
            problem=f"{chosen!r} is not a valid node name",
            fix="use lower-case letters, digits, '-' and '.', such as node-1.example",
        )
    return name


def check_node_ips(given: Sequence[str]) -> tuple[str, ...]:
    """Check the addresses of ``--node-ip``, and return them in normal form.

    Raises InvalidConfig for an invalid, multicast or unspecified address, and for two addresses of one family.
    """
    addresses = []
    for text in given:
        try:
            address = ipaddress.ip_address(text.strip())
        except ValueError:
            raise _bad_ip(f"{text!r} is not an IP address") from None
        if address.is_multicast or address.is_unspecified:
            raise _bad_ip(f"{text!r} cannot be a node's address")
        addresses.append(address)
    if len({address.version for address in addresses}) < len(addresses):
        raise _bad_ip(f"{', '.join(given)} are two addresses of one family")
    return tuple(str(address) for address in addresses)


def detect_node_ips(
    given: Sequence[str] = (), find: Callable[[socket.AddressFamily, str], str | None] | None = None
) -> tuple[str, ...]:
    """Return the node's addresses, primary first: `given` (``--node-ip``) if there is one, else an address that is found.

    If `given` is only ``0.0.0.0`` or only ``::``, an address is found too, of IPv4 or of IPv6 by preference. If the
    node has no network, the result is 127.0.0.1. `find`: function that returns the source address of packets to a
    target; None: ask the kernel.
    """
    if not names_no_address(given):
        return check_node_ips(given)
    probes = _ROUTE_PROBES[::-1] if tuple(given) == ("::",) else _ROUTE_PROBES
    detected = [ip for ip in ((find or _source_address)(*probe) for probe in probes) if ip]
    return (*detected, *local_addresses(), "127.0.0.1")[:1]


def names_no_address(given: Sequence[str]) -> bool:
    """Return True if the agent must find the node's address: `given` is empty, only ``0.0.0.0`` or only ``::``."""
    return not given or tuple(given) in (("0.0.0.0",), ("::",))


def local_addresses(table: Path = Path("/proc/net/fib_trie")) -> tuple[str, ...]:
    """Return the IPv4 addresses of this host except loopback, in the kernel's order.

    `table`: the kernel's routing table; if it cannot be read, the result is empty.
    """
    previous, addresses = "", []
    try:
        lines = table.read_text().split("\n")
    except OSError:
        return ()
    for line in lines:
        if "host LOCAL" in line and "/32" in line:
            ip = previous.rpartition("|-- ")[2].strip()
            if ip and not ip.startswith("127.") and ip not in addresses:
                addresses.append(ip)
        previous = line
    return tuple(addresses)


def node_addresses(name: str, ips: Sequence[str]) -> tuple[NodeAddress, ...]:
    """Return the addresses for the node's status: each of `ips` as InternalIP, then the name as Hostname."""
    internal = (NodeAddress(type="InternalIP", address=ip) for ip in ips)
    return (*internal, NodeAddress(type="Hostname", address=name))


def _source_address(family: socket.AddressFamily, target: str) -> str | None:
    """Return the source address of packets to `target`; None without a route, or for a loopback or link-local address.

    Connecting a UDP socket sends nothing.
    """
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            ip = str(probe.getsockname()[0])
    except OSError:  # such as ENETUNREACH: no route for this family
        return None
    address = ipaddress.ip_address(ip)
    return None if address.is_loopback or address.is_link_local else ip


def _bad_ip(problem: str) -> InvalidConfig:
    return InvalidConfig(field="--node-ip", problem=problem, fix="give one address, or one IPv4 and one IPv6")
