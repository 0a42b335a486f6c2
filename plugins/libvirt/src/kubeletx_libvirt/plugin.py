"""Registers the runtime kind ``libvirt``, for a libvirt of this machine.

Disks, console logs, shared directories and the pod network's devices are on this node, and the domain's definition
contains their paths. A libvirt on another machine would look for these paths there.

The libvirt module and most of the plugin are imported only when an endpoint is made.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from kubeletx.api import VM, Endpoint, Host, InvalidConfig, RegisterRuntime, Runtime, hookimpl
from kubeletx_libvirt.config import Settings

KIND = "libvirt"
SCHEMES = ("qemu", "qemu+unix", "qemu+tcp", "qemu+tls", "qemu+ssh", "test")
PARAMETERS = ("root", "socket", "mode", "keyfile", "no_verify", "no_tty", "known_hosts", "command", "pkipath")
"""URI parameters that are passed on to libvirt unchanged."""


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the runtime kind ``libvirt`` for workload type ``vm``, with its URL schemes and its settings."""
    register(
        KIND,
        make_runtime,
        workload_types=(VM,),
        schemes=SCHEMES,
        default_claim=True,
        settings=Settings,
        parameters=PARAMETERS,
    )


def make_runtime(endpoint: Endpoint, settings: Settings | None, host: Host) -> Runtime:
    """Make the runtime of one endpoint, without connecting to libvirt.

    `settings`: None: all defaults. Raises InvalidConfig for a libvirt on another machine, and for an embedded
    driver without a directory.
    """
    _refuse_remote(endpoint)
    _refuse_without_root(endpoint)
    from kubeletx_libvirt.runtime import LibvirtRuntime

    return LibvirtRuntime(endpoint, settings or Settings(), host)


def _refuse_remote(endpoint: Endpoint) -> None:
    host = urlsplit(endpoint.url).hostname
    if not host or is_this_machine(host, socket.gethostname()):
        return
    raise InvalidConfig(
        field=f"runtime {endpoint.name}",
        problem=f"{endpoint.url} is a libvirt on another machine, {host}, which has neither the disks nor the console "
        "logs, shared directories and pod network of this node",
        fix="run an agent on that machine; if it is this one, write localhost or the host's name",
    )


def _refuse_without_root(endpoint: Endpoint) -> None:
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
