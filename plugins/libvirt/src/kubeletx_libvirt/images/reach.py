"""`Reach`: the servers that one pull may contact.

A name may have any address, and a redirect may lead anywhere. So names are compared for each request, and
addresses when the socket is made (`guarded_socket`).
"""

from __future__ import annotations

import ipaddress
import socket

import msgspec
from yarl import URL

from .problems import Refused

_SETTING = "kubeletx.plugins.libvirt.imageHosts"


class Reach(msgspec.Struct, frozen=True):
    """Servers that one pull may contact.

    `listed`: the setting ``imageHosts``; None: all servers. `is_guarded`: addresses of the node itself are
    refused, and the pod's messages must not contain what servers answered.
    """

    listed: tuple[str, ...] | None = None
    is_guarded: bool = False

    def check(self, text: str) -> URL:
        """Parse a URL. Raises Refused if its server is not listed, or its name is an address of the node itself."""
        # A URL of plain ASCII is sent as written: a signed query must not be quoted again.
        try:
            url = URL(text, encoded=text.isascii())
        except ValueError as error:
            raise Refused(f"leads to a broken URL ({error})", "correct the URL") from error
        host = (url.host or "").lower().rstrip(".")
        if self.listed is not None and not any(_matches(entry, host, url.port) for entry in self.listed):
            raise Refused(f"leads to {host}:{url.port}, which is not in {_SETTING}", f"add {host} to it")
        if self.is_guarded and is_of_node(host):
            raise Refused(
                f"leads to {host}, an address of the node itself",
                f"name another server, or add {host}:{url.port} to {_SETTING}",
            )
        return url


def is_of_node(host: str) -> bool:
    """Return True for loopback, link-local, multicast and unspecified addresses, and for the node's own.

    Names other than ``localhost`` are not resolved.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # 127.1, 0x7f000001
        except OSError:
            return False
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return True
    # The kernel's source address for one of its own addresses is that address. Connecting sends nothing.
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:  # no route
            return False
        return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address


def guarded_socket(info: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
    """Make the socket for one resolved address. Raises OSError for an address of the node itself."""
    family, kind, protocol, _, address = info
    if is_of_node(str(address[0])):
        raise OSError(f"{address[0]} is an address of the node itself")
    return socket.socket(family, kind, protocol)


def _matches(entry: str, host: str, port: int | None) -> bool:
    listed = URL(f"//{entry.lower()}")
    if listed.explicit_port not in (None, port):
        return False
    name = listed.host or ""
    return host.endswith(name[1:]) if name.startswith("*.") else host == name
