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

        `kind`: unique word. `workload_types`: container, vm, or a new type that this plugin declares. `schemes`: URL
        schemes it can serve. `default_claim`: serve matching endpoints without ``plugin=KIND``. `settings`: a msgspec
        Struct for ``kubeletx.plugins.<kind>`` of the configuration file. `parameters`: URL query parameters it accepts;
        others are refused at start.
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


class RegisterAdmissionCheck(Protocol):
    """The function handed to `kubeletx_register_admission_checks`."""

    def __call__(
        self,
        name: str,
        factory: AdmissionCheckFactory,
        *,
        fails_open: bool = False,
        settings: type[Any] | None = None,
    ) -> None:
        """Declare an admission check.

        `name`, `settings`: as for `RegisterHealthCheck`. `fails_open`: a pod is admitted although this check could
        not decide; otherwise the pod waits until it can.
        """
        ...


class RegisterPodSource(Protocol):
    """The function handed to `kubeletx_register_pod_sources`."""

    def __call__(self, name: str, factory: PodSourceFactory, *, settings: type[Any] | None = None) -> None:
        """Declare a pod source.

        `name`, `settings`: as for `RegisterHealthCheck`; not the name of a built-in source. The name
        is the value of annotation ``kubernetes.io/config.source`` of its pods.
        """
        ...


class RegisterPanel(Protocol):
    """The function handed to `kubeletx_register_panels`."""

    def __call__(
        self, name: str, factory: PanelFactory, *, title: str = "", settings: type[Any] | None = None
    ) -> None:
        """Declare a panel. `name`, `settings`: as for `RegisterHealthCheck`. `title`: for lists; empty: the name."""
        ...


class RegisterVolumeDriver(Protocol):
    """The function handed to `kubeletx_register_volume_drivers`."""

    def __call__(self, name: str, factory: VolumeDriverFactory, *, settings: type[Any] | None = None) -> None:
        """Always raises Unsupported: this agent does not support volume drivers yet."""
        ...


class RegisterRemedy(Protocol):
    """The function handed to `kubeletx_register_remedies`."""

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
