"""Converts CNI's result and the pod's DNS settings to the guest's link on the pod network. Pure."""

from __future__ import annotations

import ipaddress
from typing import Any

from kubeletx.api import PodAddress
from kubeletx.api.specs import Dns

from .links import GuestLink, LinkKind, Route


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
