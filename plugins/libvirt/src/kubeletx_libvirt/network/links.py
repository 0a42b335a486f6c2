"""`GuestLink`: one network interface of a guest, with all that the domain's XML and cloud-init need of it."""

from __future__ import annotations

import enum

from kubeletx.api.specs import Dns, Spec


class LinkKind(enum.Enum):
    """Kind of connection between the guest's interface and the node."""

    DIRECT = "direct"
    """A macvtap that is the guest's alone: the pod network."""
    BRIDGE = "bridge"
    """A tap on a bridge of the node."""
    NETWORK = "network"
    """A named network of libvirt."""


class Route(Spec, frozen=True, kw_only=True):
    """`destination` in CIDR form; no `gateway`: on the link itself."""

    destination: str
    gateway: str = ""


class GuestLink(Spec, frozen=True, kw_only=True):
    """`source`: the device, bridge or network. `addresses` in CIDR form; none with `dhcp`: the guest asks.

    `mtu` 0: the device's own. `tag` is the pod author's word for the interface, handed to the guest.
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
        """The addresses without their prefix lengths, as a pod's status shows them."""
        return tuple(address.partition("/")[0] for address in self.addresses)
