"""`GuestLink`: one network interface of a guest, with all data for the domain's XML and for cloud-init."""

from __future__ import annotations

import enum

from kubeletx.api.specs import Dns, Spec


class LinkKind(enum.Enum):
    """Type of the connection between the guest's interface and the node."""

    DIRECT = "direct"
    """A macvtap that only this guest uses; for the pod network."""
    BRIDGE = "bridge"
    """A tap on a bridge of the node."""
    NETWORK = "network"
    """A named network of libvirt."""


class Route(Spec, frozen=True, kw_only=True):
    """One route. `destination`: in CIDR notation. `gateway`: empty: on-link."""

    destination: str
    gateway: str = ""


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
