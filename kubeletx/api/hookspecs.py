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

from .admission import AdmissionCheckFactory
from .health import HealthCheckFactory
from .host import RuntimeFactory
from .panels import PanelFactory
from .pod_sources import PodSourceFactory
from .seats import RemedyFactory, VolumeDriverFactory

PROJECT = "kubeletx"
ENTRY_POINT_GROUP = "kubeletx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class RegisterRuntime(Protocol):
    """Function that `kubeletx_register_runtimes` gets; it registers one runtime kind."""

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
        """Register a runtime kind.

        `kind`: unique word. `workload_types`: container, vm, or a new type that this plugin declares.
        `schemes`: URL schemes it can serve. `default_claim`: serve matching endpoints that do not name
        ``plugin=KIND``. `settings`: a msgspec Struct for the section ``kubeletx.plugins.<kind>`` of the
        configuration file. `parameters`: URL query parameters it accepts; an endpoint with others is refused
        at start.
        """
        ...


class RegisterHealthCheck(Protocol):
    """Function that `kubeletx_register_health_checks` gets; it registers one health check."""

    def __call__(
        self,
        name: str,
        factory: HealthCheckFactory,
        *,
        period_seconds: float = 60.0,
        settings: type[Any] | None = None,
    ) -> None:
        """Register a health check.

        `name`: lower-case letters, digits and dashes, unique among everything that plugins register.
        `period_seconds`: from the end of one check to the next, 1 or more. `settings`: a msgspec Struct for
        the section ``kubeletx.plugins.<name>`` of the configuration file.
        """
        ...


class RegisterAdmissionCheck(Protocol):
    """Function that `kubeletx_register_admission_checks` gets; it registers one admission check."""

    def __call__(
        self,
        name: str,
        factory: AdmissionCheckFactory,
        *,
        fails_open: bool = False,
        settings: type[Any] | None = None,
    ) -> None:
        """Register an admission check.

        `name`, `settings`: as for `RegisterHealthCheck`. `fails_open`: True: a pod is admitted if this check
        raises or misses its deadline; False: the pod waits until the check can decide.
        """
        ...


class RegisterPodSource(Protocol):
    """Function that `kubeletx_register_pod_sources` gets; it registers one pod source."""

    def __call__(self, name: str, factory: PodSourceFactory, *, settings: type[Any] | None = None) -> None:
        """Register a pod source.

        `name`, `settings`: as for `RegisterHealthCheck`; not the name of a built-in source. The pods of the
        source get the name as the value of annotation ``kubernetes.io/config.source``.
        """
        ...


class RegisterPanel(Protocol):
    """Function that `kubeletx_register_panels` gets; it registers one panel."""

    def __call__(
        self, name: str, factory: PanelFactory, *, title: str = "", settings: type[Any] | None = None
    ) -> None:
        """Register a panel. `name`, `settings`: as for `RegisterHealthCheck`.

        `title`: heading in lists of panels; empty: the name.
        """
        ...


class RegisterVolumeDriver(Protocol):
    """Function that `kubeletx_register_volume_drivers` gets; it refuses every driver."""

    def __call__(self, name: str, factory: VolumeDriverFactory, *, settings: type[Any] | None = None) -> None:
        """Always raises Unsupported: this agent does not support volume drivers yet."""
        ...


class RegisterRemedy(Protocol):
    """Function that `kubeletx_register_remedies` gets; it refuses every remedy."""

    def __call__(self, name: str, factory: RemedyFactory, *, settings: type[Any] | None = None) -> None:
        """Always raises Unsupported: this agent does not support remedies yet."""
        ...


@hookspec
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register runtime kinds by calling `register` once for each."""


@hookspec
def kubeletx_register_health_checks(register: RegisterHealthCheck) -> None:
    """Register health checks of the node by calling `register` once for each."""


@hookspec
def kubeletx_register_pod_sources(register: RegisterPodSource) -> None:
    """Register pod sources by calling `register` once for each."""


@hookspec
def kubeletx_register_admission_checks(register: RegisterAdmissionCheck) -> None:
    """Register checks of new pods by calling `register` once for each."""


@hookspec
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """Register panels by calling `register` once for each."""


@hookspec
def kubeletx_register_volume_drivers(register: RegisterVolumeDriver) -> None:
    """Register volume drivers. This agent does not support them yet and refuses them."""


@hookspec
def kubeletx_register_remedies(register: RegisterRemedy) -> None:
    """Register remedies for other nodes. This agent does not support them yet and refuses them."""
