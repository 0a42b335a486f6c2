"""The hooks a plugin may implement. They only register: synchronous, quick, free of I/O.

A plugin is a pip distribution with an entry point in group ``kubeletx`` that names a module (or object)
holding functions marked with `hookimpl`::

    from kubeletx.api import hookimpl

    @hookimpl
    def kubeletx_register_runtimes(register):
        register("libvirt", LibvirtRuntime, workload_types=("vm",), schemes=("qemu",), default_claim=True)
"""

from __future__ import annotations

from typing import Any, Protocol

import pluggy

from .health import HealthCheckFactory
from .host import RuntimeFactory

PROJECT = "kubeletx"
ENTRY_POINT_GROUP = "kubeletx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class RegisterRuntime(Protocol):
    """The function handed to `kubeletx_register_runtimes`."""

    def __call__(
        self,
        kind: str,
        factory: RuntimeFactory,
        *,
        workload_types: tuple[str, ...],
        schemes: tuple[str, ...],
        default_claim: bool = False,
        settings: type[Any] | None = None,
        parameters: tuple[str, ...] = (),
    ) -> None:
        """Declare a runtime kind.

        `kind`: unique word. `workload_types`: container, vm, or a new type that this plugin declares.
        `schemes`: URL schemes it can serve. `default_claim`: serve matching endpoints without
        ``plugin=KIND``. `settings`: a msgspec Struct for ``kubeletx.plugins.<kind>`` of the configuration
        file. `parameters`: URL query parameters it understands; others are refused at start.
        """
        ...


class RegisterHealthCheck(Protocol):
    """The function handed to `kubeletx_register_health_checks`."""

    def __call__(
        self,
        name: str,
        factory: HealthCheckFactory,
        *,
        period_seconds: float = 60.0,
        settings: type[Any] | None = None,
    ) -> None:
        """Declare a health check.

        `name`: lower-case letters, digits and dashes, unique among everything that plugins register.
        `period_seconds`: from the end of one check to the next, 1 or more. `settings`: a msgspec Struct for
        ``kubeletx.plugins.<name>`` of the configuration file.
        """
        ...


@hookspec
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register runtime kinds by calling `register` once for each."""


@hookspec
def kubeletx_register_health_checks(register: RegisterHealthCheck) -> None:
    """Register health checks of the node by calling `register` once for each."""
