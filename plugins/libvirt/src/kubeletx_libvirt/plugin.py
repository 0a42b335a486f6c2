"""Registers the runtime kind ``libvirt``.

The libvirt module and most of the plugin are imported only when an endpoint is made.
"""

from __future__ import annotations

from kubeletx.api import VM, Endpoint, Host, RegisterRuntime, Runtime, hookimpl
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.location import refuse_remote, refuse_without_root

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
    refuse_remote(endpoint)
    refuse_without_root(endpoint)
    from kubeletx_libvirt.runtime import LibvirtRuntime

    return LibvirtRuntime(endpoint, settings or Settings(), host)
