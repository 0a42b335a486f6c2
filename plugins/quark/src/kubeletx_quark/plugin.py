"""Registers the runtime kind ``quark``.

The CRI client is imported only when an endpoint is made.
"""

from __future__ import annotations

from typing import Any

from kubeletx.api import CONTAINER, Endpoint, Host, RegisterRuntime, Runtime, hookimpl

from .config import PARAMETERS

KIND = "quark"


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the runtime kind ``quark``, for a containerd of this node.

    It serves endpoints named quark, and those with ``plugin=quark`` in their URL.
    """
    register(
        KIND,
        make_runtime,
        workload_types=(CONTAINER,),
        schemes=("unix",),
        parameters=PARAMETERS,
    )


def make_runtime(endpoint: Endpoint, settings: Any, host: Host) -> Runtime:
    """Make the runtime of one endpoint, without connecting to the server."""
    from .runtime import QuarkRuntime

    return QuarkRuntime(endpoint, settings, host)
