"""`GuestLink`: one network interface of a guest, with all data for the domain's XML and for cloud-init. Pure.

`to_link` makes the link on the pod network from CNI's result and the pod's DNS settings. `interface_xml` converts a link
to libvirt's ``<interface>``; the pod's own link is an existing macvtap (``type='ethernet'``, not managed), which libvirt
only opens.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from typing import Any

from kubeletx.api import PodAddress
from kubeletx.api.specs import Dns, Spec
from kubeletx_libvirt.config import Route

_NOT_IN_ALIAS = re.compile(r"[^A-Za-z0-9_-]")


class LinkKind(enum.Enum):
    """Type of the connection between the guest's interface and the node."""

    DIRECT = "direct"
    """A macvtap that only this guest uses; for the pod network."""
    BRIDGE = "bridge"
    """A tap on a bridge of the node."""
    NETWORK = "network"
    """A named network of libvirt."""


class GuestLink(Spec, frozen=True, kw_only=True):
    """One network interface of a guest, and its connection to the node.

    `name`: name of the interface in the guest. `source`: name of the device, bridge or network on the node.
    `addresses`: in CIDR notation; empty with `dhcp`. `dns`: None: no settings. `mtu`: 0: the device's
    default. `ipv6`: the guest uses IPv6. `tag`: the pod author's label for the interface, passed to the
    guest.
    """

    name: str
    kind: LinkKind
    source: str
    mac: str
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Dns | None = None
    mtu: int = 0
    dhcp: bool = False
    ipv6: bool = False
    tag: str = ""

    @property
    def ips(self) -> tuple[str, ...]:
        """The addresses without prefix lengths, as a pod's status shows them."""
        return tuple(address.partition("/")[0] for address in self.addresses)


def interface_xml(link: GuestLink) -> str:
    """Return the ``<interface>`` element as text, for the domain's definition and for hotplug.

    Its alias is ``ua-`` and the link's name.
    """
    from xml.etree import ElementTree as ET  # not at the start of the agent: the settings need this module

    is_direct = link.kind is LinkKind.DIRECT
    root = ET.Element("interface", type="ethernet" if is_direct else link.kind.value)
    ET.SubElement(root, "mac", address=link.mac)
    if is_direct:
        ET.SubElement(root, "target", dev=link.source, managed="no")
    else:
        ET.SubElement(root, "source", {link.kind.value: link.source})
    ET.SubElement(root, "model", type="virtio")
    if link.mtu and not is_direct:
        ET.SubElement(root, "mtu", size=str(link.mtu))
    ET.SubElement(root, "alias", name=interface_alias(link.name))
    return ET.tostring(root, encoding="unicode")


def interface_alias(name: str) -> str:
    """Return libvirt's alias for the interface `name`, by which it is found in a domain's XML."""
    return "ua-" + _NOT_IN_ALIAS.sub("_", name)


def to_link(address: PodAddress, *, device: str, mac: str, mtu: int, dns: Dns | None) -> GuestLink:
    """Build the guest's link on the pod network.

    `address`: CNI's result. `device`: the macvtap that the emulator opens. `mac`: MAC address for the guest.
    `dns`: the pod's DNS settings; None: those in CNI's result, if any.
    """
    return GuestLink(
        name=address.interface,
        kind=LinkKind.DIRECT,
        source=device,
        mac=mac,
        addresses=address.ips,
        routes=_routes(address),
        dns=dns or _dns(address.result),
        mtu=mtu,
        ipv6=any(":" in ip for ip in address.ips),
    )


def _routes(address: PodAddress) -> tuple[Route, ...]:
    """Return the routes of CNI's result.

    A route without a gateway gets the gateway of its address family, if there is one.
    """
    gateways = {ipaddress.ip_address(gateway).version: gateway for gateway in reversed(address.gateways)}
    routes = []
    for entry in _listed(address.result):
        destination = entry.get("dst", "")
        version = ipaddress.ip_network(destination, strict=False).version
        routes.append(Route(destination=destination, gateway=entry.get("gw") or gateways.get(version, "")))
    return tuple(routes)


def _listed(result: dict[str, Any]) -> list[dict[str, Any]]:
    if "ip4" in result or "ip6" in result:  # results of CNI 0.2.0 and earlier
        return [route for key in ("ip4", "ip6") for route in (result.get(key) or {}).get("routes") or []]
    return result.get("routes") or []


def _dns(result: dict[str, Any]) -> Dns | None:
    said = result.get("dns") or {}
    dns = Dns(
        servers=tuple(said.get("nameservers") or ()),
        searches=tuple(said.get("search") or ()),
        options=tuple(said.get("options") or ()),
    )
    return dns if dns.servers else None
