"""Checks that a libvirt URI leads to this machine. Pure except for reading the host's name.

Disks, console logs, shared directories and the pod network's devices are on this node, and the domain's
definition contains their paths. A libvirt on another machine would look for these paths there.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from kubeletx.api import Endpoint, InvalidConfig


def refuse_remote(endpoint: Endpoint) -> None:
    """Raise InvalidConfig if the endpoint's URI names another machine."""
    host = urlsplit(endpoint.url).hostname
    if not host or is_this_machine(host, socket.gethostname()):
        return
    raise InvalidConfig(
        field=f"runtime {endpoint.name}",
        problem=f"{endpoint.url} is a libvirt on another machine, {host}, which has neither the disks nor the console "
        "logs, shared directories and pod network of this node",
        fix="run an agent on that machine; if it is this one, write localhost or the host's name",
    )


def refuse_without_root(endpoint: Endpoint) -> None:
    """Raise InvalidConfig if the endpoint is libvirt's embedded driver without ``root=DIRECTORY``."""
    parts = urlsplit(endpoint.url)
    if parts.path != "/embed" or parse_qs(parts.query).get("root"):
        return
    raise InvalidConfig(
        field=f"runtime {endpoint.name}",
        problem=f"{endpoint.url} names no directory for the embedded driver",
        fix="write qemu:///embed?root=DIRECTORY",
    )


def is_this_machine(host: str, own: str) -> bool:
    """Return True if `host` is a loopback address, localhost, or this machine's name with or without its domain.

    `own`: this machine's name.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in {"localhost", own.lower(), own.lower().partition(".")[0]}
