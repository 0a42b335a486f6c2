"""A DHCP server for one guest: converts a request frame to an answer frame. Pure.

It offers only the pod's address, with an infinite lease; so there is no state and no pool. A guest that
requests another address is refused. Sources: RFC 2131 (protocol), 2132 (options), 3397 (search list), 3442
(classless routes).
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Final

from kubeletx.api.specs import Spec

from ..config import Route
from .links import GuestLink

SERVER_PORT: Final = 67
CLIENT_PORT: Final = 68
_IPV4: Final = 0x0800
_UDP: Final = 17
_ETHERNET_BYTES: Final = 14
_UDP_BYTES: Final = 8
_BOOTP: Final = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
_COOKIE: Final = bytes.fromhex("63825363")
_NOBODY: Final = bytes(4)
_EVERYBODY: Final = b"\xff" * 4
_BROADCAST_MAC: Final = b"\xff" * 6
_BROADCAST_FLAG: Final = 0x8000
_FOR_EVER: Final = b"\xff" * 4
_LEAST_BYTES: Final = 300
"""Minimum size of a BOOTP message; old clients and relays drop shorter ones."""
_USUAL_LIMIT: Final = 576
_HEADERS_BYTES: Final = 28
"""Size of the IP and UDP headers, which are included in a client's maximum message size."""
_MOST_LABEL_BYTES: Final = 63

DISCOVER, OFFER, REQUEST, ACK, NAK, INFORM = 1, 2, 3, 5, 6, 8

MASK, ROUTER, DNS, MTU = 1, 3, 6, 26
WANTED, LEASE_SECONDS, KIND, SERVER, LARGEST = 50, 51, 53, 54, 57
SEARCH, ROUTES = 119, 121
_PAD, _END = 0, 255


class Lease(Spec, frozen=True, kw_only=True):
    """Configuration that the guest gets by DHCP.

    `interface`: the guest's address with its prefix length. `mac`: sender address of the answers. `servers`,
    `searches`: for DNS.
    """

    interface: ipaddress.IPv4Interface
    mac: bytes
    routes: tuple[Route, ...] = ()
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    mtu: int = 0

    @property
    def server(self) -> ipaddress.IPv4Address:
        """Server identifier in answers: the guest's first gateway, or 169.254.1.1 if it has none."""
        gateways = [route.gateway for route in self.routes if route.gateway]
        return ipaddress.IPv4Address(gateways[0] if gateways else "169.254.1.1")


def lease_of(link: GuestLink, mac: str) -> Lease | None:
    """Return the parts of a link that DHCP can express; None if the link has no IPv4 address.

    `mac`: sender address of the answers.
    """
    mine = [address for address in map(ipaddress.ip_interface, link.addresses) if address.version == 4]
    if not mine:
        return None
    dns = link.dns
    return Lease(
        interface=ipaddress.IPv4Interface(mine[0]),
        mac=bytes.fromhex(mac.replace(":", "")),
        routes=tuple(route for route in link.routes if ":" not in route.destination + route.gateway),
        servers=tuple(server for server in dns.servers if ":" not in server) if dns is not None else (),
        searches=dns.searches if dns is not None else (),
        mtu=link.mtu,
    )


def answer(frame: bytes, lease: Lease) -> bytes | None:
    """Return the frame that answers a DHCP request; None if `frame` is not a DHCP request for this server."""
    message = _message(frame)
    if message is None or len(message) < _BOOTP.size:
        return None
    op, kind, length, _, xid, _, flags, ciaddr, _, _, giaddr, chaddr, _, _, cookie = _BOOTP.unpack_from(
        message
    )
    if (op, kind, length, giaddr, cookie) != (1, 1, 6, _NOBODY, _COOKIE):
        return None
    asked = dict(_options(message[_BOOTP.size :]))
    said = _decide(asked, ciaddr, lease)
    if said is None:
        return None
    limit = _USUAL_LIMIT
    if len(asked.get(LARGEST, b"")) == 2:
        limit = max(limit, int.from_bytes(asked[LARGEST]))
    yiaddr = lease.interface.ip.packed if said != NAK and asked[KIND] != bytes([INFORM]) else _NOBODY
    body = _BOOTP.pack(
        2,
        1,
        6,
        0,
        xid,
        0,
        flags,
        ciaddr if said == ACK else _NOBODY,
        yiaddr,
        _NOBODY,
        _NOBODY,
        chaddr,
        b"",
        b"",
        _COOKIE,
    )
    room = limit - _HEADERS_BYTES - len(body)
    body += _encoded(_answers(said, lease, has_address=yiaddr != _NOBODY), room)
    everybody = said == NAK or flags & _BROADCAST_FLAG
    target = _EVERYBODY if said == NAK or ciaddr == _NOBODY else ciaddr
    return _frame(body.ljust(_LEAST_BYTES, b"\0"), lease, target, _BROADCAST_MAC if everybody else chaddr[:6])


def _decide(asked: dict[int, bytes], ciaddr: bytes, lease: Lease) -> int | None:
    kind = asked.get(KIND, b"\0")[0]
    if asked.get(SERVER, lease.server.packed) != lease.server.packed:
        return None  # it took another server's offer
    if kind == DISCOVER:
        return OFFER
    if kind == INFORM:
        return ACK
    if kind == REQUEST:
        return ACK if asked.get(WANTED, ciaddr) == lease.interface.ip.packed else NAK
    return None


def _answers(said: int, lease: Lease, *, has_address: bool) -> Iterator[tuple[int, bytes]]:
    """Yield options in order of importance, since the last ones are left out if the message is too small for them."""
    yield KIND, bytes([said])
    yield SERVER, lease.server.packed
    if said == NAK:
        return
    if has_address:
        yield LEASE_SECONDS, _FOR_EVER
    yield MASK, lease.interface.netmask.packed
    gateways = [route.gateway for route in lease.routes if route.gateway and route.destination == "0.0.0.0/0"]
    if gateways:
        yield ROUTER, ipaddress.IPv4Address(gateways[0]).packed
    if lease.servers:
        yield DNS, b"".join(ipaddress.IPv4Address(server).packed for server in lease.servers)
    if lease.mtu:
        yield MTU, lease.mtu.to_bytes(2)
    if lease.routes:
        yield ROUTES, b"".join(_classless(lease))
    if lease.searches:
        yield SEARCH, b"".join(map(_domain, lease.searches))


def _classless(lease: Lease) -> Iterator[bytes]:
    """Yield the classless routes as DHCP encodes them; on-link routes come before routes through a gateway.

    A gateway outside the guest's own subnet gets an on-link route.
    """
    foreign = {
        route.gateway
        for route in lease.routes
        if route.gateway and ipaddress.IPv4Address(route.gateway) not in lease.interface.network
    }
    known = {route.destination for route in lease.routes}
    for gateway in sorted(foreign):
        if f"{gateway}/32" not in known:
            yield _descriptor(f"{gateway}/32") + _NOBODY
    for route in sorted(lease.routes, key=lambda lease_route: bool(lease_route.gateway)):
        router = ipaddress.IPv4Address(route.gateway).packed if route.gateway else _NOBODY
        yield _descriptor(route.destination) + router


def _descriptor(destination: str) -> bytes:
    network = ipaddress.IPv4Network(destination, strict=False)
    return bytes([network.prefixlen]) + network.network_address.packed[: (network.prefixlen + 7) // 8]


def _domain(name: str) -> bytes:
    labels = [label.encode("idna") if not label.isascii() else label.encode() for label in name.split(".")]
    return (
        b"".join(bytes([len(label)]) + label for label in labels if 0 < len(label) <= _MOST_LABEL_BYTES)
        + b"\0"
    )


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        if at + 1 >= len(data):
            return
        length = data[at + 1]
        value = data[at + 2 : at + 2 + length]
        if len(value) < length or not value:
            return
        yield data[at], value
        at += 2 + length


def _encoded(options: Iterator[tuple[int, bytes]], room: int) -> bytes:
    """Encode options; a value above 255 bytes is split into several parts with the same option number (RFC 3396).

    `room`: maximum size in bytes.
    """
    text = b""
    for number, value in options:
        parts = [value[at : at + 255] for at in range(0, len(value), 255)]
        encoded = b"".join(bytes([number, len(part)]) + part for part in parts)
        if len(text) + len(encoded) + 1 <= room:
            text += encoded
    return text + bytes([_END])


# --- frames ---


def _message(frame: bytes) -> bytes | None:
    """Return the payload of a UDP datagram to the DHCP server's port; None for all other frames."""
    if len(frame) < _ETHERNET_BYTES + 20 or int.from_bytes(frame[12:14]) != _IPV4:
        return None
    packet = frame[_ETHERNET_BYTES:]
    header = (packet[0] & 0x0F) * 4
    fragment = int.from_bytes(packet[6:8]) & 0x3FFF
    if packet[0] >> 4 != 4 or packet[9] != _UDP or fragment or len(packet) < header + _UDP_BYTES:
        return None
    port, length = struct.unpack_from("!HH", packet, header + 2)
    if port != SERVER_PORT:
        return None
    return packet[header + _UDP_BYTES : header + length]


def _frame(message: bytes, lease: Lease, target: bytes, target_mac: bytes) -> bytes:
    length = _UDP_BYTES + len(message)
    source = lease.server.packed
    pseudo = source + target + struct.pack("!BBH", 0, _UDP, length)
    ports = struct.pack("!HHH", SERVER_PORT, CLIENT_PORT, length)
    checksum = _checksum(pseudo + ports + b"\0\0" + message) or 0xFFFF
    header = struct.pack("!BBHHHBBH", 0x45, 0xC0, 20 + length, 0, 0, 64, _UDP, 0) + source + target
    header = header[:10] + _checksum(header).to_bytes(2) + header[12:]
    ethernet = target_mac + lease.mac + _IPV4.to_bytes(2)
    return ethernet + header + ports + checksum.to_bytes(2) + message


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
