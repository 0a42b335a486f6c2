"""rtnetlink: the few kernel requests that a pod's link needs, without starting programs.

A socket belongs to the namespace in which its thread was at creation, and acts there whatever thread uses it.
The kernel executes a request during the send and answers each one, so `Netlink` waits only for the kernel's
own lock. Sources: netlink(7), rtnetlink(7), linux/if_link.h.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final, Self

from kubeletx.api.specs import Spec

IFF_UP: Final = 0x1
IFF_ALLMULTI: Final = 0x200

_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _DELADDR, _GETADDR = 16, 17, 18, 20, 21, 22
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE, _DUMP = 0x1, 0x4, 0x100, 0x200, 0x400, 0x300
_ANSWER_HAS_TEXT: Final = 0x200
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK: Final = struct.Struct("=BxHiII")  # family, type, index, flags, which flags
_ADDRESS: Final = struct.Struct("=BBBBI")  # family, prefix, flags, scope, index
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_MOST_BYTES: Final = 1 << 17

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 1, 3, 4, 5, 10
_IFLA_LINKINFO, _IFLA_AF_SPEC, _IFLA_NET_NS_FD = 18, 26, 28
_INFO_KIND, _INFO_DATA, _INFO_SLAVE_KIND, _INFO_SLAVE_DATA = 1, 2, 4, 5
_VETH_PEER: Final = 1
_MACVLAN_MODE, _PASSTHRU = 1, 8
_BRIDGE_STP, _BRIDGE_MULTICAST_SNOOPING, _PORT_LEARNING = 5, 23, 8
_ADDRESS_GENERATION, _GENERATE_NONE = 8, 1


class Device(Spec, frozen=True, kw_only=True):
    """One network device. `master`: index of its bridge; 0 if it is not a bridge port."""

    name: str
    index: int
    is_up: bool
    mtu: int
    master: int = 0


class Netlink:
    """An rtnetlink socket that acts in the namespace of the thread that makes the object.

    A request that the kernel refuses raises OSError with the name of the request.
    """

    def __init__(self) -> None:
        """Open the socket in the network namespace of the calling thread."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def list_devices(self) -> dict[str, Device]:
        answers = self._request("list devices", _GETLINK, _DUMP, _link())
        return {device.name: device for device in map(_to_device, answers)}

    def get_index(self, name: str) -> int:
        (answer,) = self._request(f"find {name}", _GETLINK, 0, _link(name))
        return _to_device(answer).index

    def add_veth(self, name: str, *, mtu: int, peer: str, peer_namespace: int) -> None:
        """Add a veth pair: `name` in this namespace, `peer` in the namespace with the descriptor `peer_namespace`."""
        other = _link(peer) + _number(_IFLA_MTU, mtu) + _number(_IFLA_NET_NS_FD, peer_namespace)
        self._add(name, "veth", _attribute(_VETH_PEER, other), _number(_IFLA_MTU, mtu))

    def add_macvtap(self, name: str, *, mtu: int, mac: str, on: str) -> None:
        """Add a macvtap (mode passthru) on top of the device `on`."""
        more = _number(_IFLA_LINK, self.get_index(on)) + _number(_IFLA_MTU, mtu) + _mac(mac)
        self._add(name, "macvtap", _number(_MACVLAN_MODE, _PASSTHRU), more)

    def add_bridge(self, name: str, *, mtu: int) -> None:
        """Add a bridge without spanning tree that forwards all multicast."""
        data = _number(_BRIDGE_STP, 0) + _byte(_BRIDGE_MULTICAST_SNOOPING, 0)
        self._add(name, "bridge", data, _number(_IFLA_MTU, mtu))

    def delete(self, name: str) -> None:
        """Delete the device. With a veth end, its peer and the devices on top of it are deleted too."""
        self._request(f"delete {name}", _DELLINK, 0, _link(name))

    def set_flags(self, name: str, flags: int) -> None:
        """Set these flags of the device; its other flags are unchanged."""
        self._request(f"set flags of {name}", _NEWLINK, 0, _link(name, flags))

    def set_mac(self, name: str, mac: str) -> None:
        self._request(f"set address of {name}", _NEWLINK, 0, _link(name) + _mac(mac))

    def set_no_ipv6_address(self, name: str) -> None:
        """Prevent the device from getting a link-local IPv6 address when it goes up."""
        inet6 = _attribute(socket.AF_INET6, _byte(_ADDRESS_GENERATION, _GENERATE_NONE))
        body = _link(name) + _attribute(_IFLA_AF_SPEC, inet6)
        self._request(f"set addrgenmode of {name}", _NEWLINK, 0, body)

    def set_port(self, name: str, bridge: int) -> None:
        """Make the device a port of the bridge with this index, with MAC learning off."""
        self._request(f"set master of {name}", _NEWLINK, 0, _link(name) + _number(_IFLA_MASTER, bridge))
        data = _attribute(_INFO_SLAVE_KIND, b"bridge\0")
        data += _attribute(_INFO_SLAVE_DATA, _byte(_PORT_LEARNING, 0))
        self._request(f"set learning of {name}", _NEWLINK, 0, _link(name) + _attribute(_IFLA_LINKINFO, data))

    def flush_addresses(self, name: str) -> None:
        """Remove all IP addresses of the device; the kernel removes their routes too."""
        index = self.get_index(name)
        for address in self._request(
            f"list addresses of {name}", _GETADDR, _DUMP, _ADDRESS.pack(0, 0, 0, 0, 0)
        ):
            if _ADDRESS.unpack_from(address)[4] != index:
                continue
            try:
                self._request(f"delete an address of {name}", _DELADDR, 0, address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:  # removed with its primary address
                    raise

    def add_address(self, name: str, ip: str) -> None:
        """Add an IP address without a network to the device; does nothing if the device has it."""
        address = ipaddress.ip_address(ip)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        body = _ADDRESS.pack(family, address.max_prefixlen, 0, 0, self.get_index(name))
        body += _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
        self._request(f"add {ip} to {name}", _NEWADDR, _CREATE | _REPLACE, body)

    # --- private ---

    def _add(self, name: str, kind: str, data: bytes, more: bytes) -> None:
        info = _attribute(_INFO_KIND, kind.encode() + b"\0") + _attribute(_INFO_DATA, data)
        body = _link(name) + more + _attribute(_IFLA_LINKINFO, info)
        self._request(f"add {kind} {name}", _NEWLINK, _CREATE | _EXCLUSIVE, body)

    def _request(self, what: str, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request and return the bodies of the answers. `what`: name of the request, for errors."""
        self._sequence += 1
        flags |= _REQUEST if flags == _DUMP else _REQUEST | _ACK
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, self._sequence, 0) + body)
        answers: list[bytes] = []
        while True:
            for answer_kind, answer_flags, answer in _messages(self._socket.recv(_MOST_BYTES)):
                if answer_kind in (_ERROR, _DONE):
                    _raise_for(what, answer_flags, answer)
                    return answers
                answers.append(answer)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    while offset < len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, data[offset + _HEADER.size : offset + length]
        offset += _aligned(length)


def _raise_for(what: str, flags: int, answer: bytes) -> None:
    number = -struct.unpack_from("=i", answer)[0]
    if number == 0:
        return
    words = os.strerror(number)
    if flags & _ANSWER_HAS_TEXT:
        said = dict(_attributes(answer[4 + _HEADER.size :])).get(1, b"")
        words += f" ({said.rstrip(bytes(1)).decode(errors='replace')})" if said else ""
    raise OSError(number, f"{what}: {words}")


def _to_device(answer: bytes) -> Device:
    _, _, index, flags, _ = _LINK.unpack_from(answer)
    attributes = dict(_attributes(answer[_LINK.size :]))
    return Device(
        name=attributes[_IFLA_IFNAME].rstrip(b"\0").decode(),
        index=index,
        is_up=bool(flags & IFF_UP),
        mtu=struct.unpack("=I", attributes[_IFLA_MTU])[0],
        master=struct.unpack("=I", attributes.get(_IFLA_MASTER, bytes(4)))[0],
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        yield kind & 0x3FFF, data[offset + _ATTRIBUTE.size : offset + length]  # without the flags of its kind
        offset += _aligned(length)


def _link(name: str = "", flags: int = 0) -> bytes:
    named = _attribute(_IFLA_IFNAME, name.encode() + b"\0") if name else b""
    return _LINK.pack(socket.AF_UNSPEC, 0, 0, flags, flags) + named


def _mac(mac: str) -> bytes:
    return _attribute(_IFLA_ADDRESS, bytes.fromhex(mac.replace(":", "")))


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _byte(kind: int, value: int) -> bytes:
    return _attribute(kind, bytes([value]))


def _attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
