"""The operator's tables ``networks`` and ``ports``: what the names in pods mean on this node.

Source: DECISIONS 30 in docs/decisions/answers.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .links import Route

Mac = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")]
"""A unicast MAC address."""


class NetworkTarget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Network for a ``vpc`` or ``nics[].subnetName``: `bridge`, or `network`; with neither, the pod network.

    `bridge`: a bridge of this node. `network`: a named network of this libvirt. `subnet` (CIDR) and `routes`:
    for guests with ``nics[].ipAddress``; without `subnet` such a pod is refused. Other guests use the
    network's DHCP. `dns`: name servers for all guests. `mtu`: None: the device's default.
    """

    bridge: str | None = None
    network: str | None = None
    subnet: str | None = None
    routes: tuple[Route, ...] = ()
    dns: tuple[str, ...] = ()
    mtu: int | None = None

    @property
    def is_pod_network(self) -> bool:
        return self.bridge is None and self.network is None


class PortEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Port for a ``nics[].portId``. `network`: a key of ``networks``; None: the pod network.

    `mac`: None: a stable one derived from the port's id. `ip_address`: None: the address in the pod's spec,
    or DHCP if the spec has none.
    """

    network: str | None = None
    mac: Mac | None = None
    ip_address: str | None = None
