"""Registers the runtime kind ``containerd``.

The CRI client is imported only when an endpoint is made.
"""

from __future__ import annotations

from typing import Any

from kubeletx.api import CONTAINER, Endpoint, Host, RegisterRuntime, Runtime, hookimpl

KIND = "containerd"


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the runtime kind ``containerd``, for any CRI v1 server over a unix socket or TCP."""
    register(
        KIND,
        make_runtime,
        workload_types=(CONTAINER,),
        schemes=("unix", "tcp"),
        default_claim=True,
        parameters=("handler",),
    )


def make_runtime(endpoint: Endpoint, settings: Any, host: Host) -> Runtime:
    """Make the runtime of one endpoint, without connecting to the server."""
    from kubeletx.cri import ContainerdRuntime

    return ContainerdRuntime(endpoint, settings, host)
