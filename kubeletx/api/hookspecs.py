"""Hooks that a plugin may implement. A hook only registers objects: it is synchronous, quick and does no I/O.

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
from .remedies import RemedyFactory
from .volumes import VolumeDriverFactory

PROJECT = "kubeletx"
ENTRY_POINT_GROUP = "kubeletx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class RegisterRuntime(Protocol):
    """Function that the hook `kubeletx_register_runtimes` gets as `register`; each call registers one runtime kind."""

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
        """Register a runtime kind: a class of runtimes that endpoint URLs can select with ``plugin=KIND``.

        `kind`: unique name. `factory`: makes the runtime of one endpoint. `workload_types`: container, vm, or a
        new type that this plugin declares. `schemes`: URL schemes that the kind can serve. `default_claim`:
        the kind also serves endpoints of its workload types and schemes that have no ``plugin=KIND``.
        `settings`: a msgspec Struct for the section ``kubeletx.plugins.<kind>`` of the configuration file.
        `parameters`: URL query parameters that the kind accepts; the agent does not start with an endpoint
        that has others.
        """
        ...


class RegisterHealthCheck(Protocol):
    """Function that the hook `kubeletx_register_health_checks` gets as `register`; each call registers one check."""

    def __call__(
        self,
        name: str,
        factory: HealthCheckFactory,
        *,
        period_seconds: float = 60.0,
        settings: type[Any] | None = None,
        only_configured: bool = False,
    ) -> None:
        """Register a health check.

        `name`: lower-case letters, digits and dashes, unique among everything that plugins register.
        `factory`: makes the check. `period_seconds`: time from the end of one check to the start of the next,
        at least 1. `settings`: a msgspec Struct for the section ``kubeletx.plugins.<name>`` of the
        configuration file. `only_configured` True: the check is used only if the configuration file has that
        section; until then it costs no process.
        """
        ...


class RegisterAdmissionCheck(Protocol):
    """Function that the hook `kubeletx_register_admission_checks` gets as `register`; each call registers one check."""

    def __call__(
        self,
        name: str,
        factory: AdmissionCheckFactory,
        *,
        fails_open: bool = False,
        settings: type[Any] | None = None,
        only_configured: bool = False,
    ) -> None:
        """Register an admission check.

        `name`, `settings`, `only_configured`: as for `RegisterHealthCheck`. `fails_open` True: a pod is admitted if this check
        raises or misses its deadline. False: the pod waits, and is reviewed again later.
        """
        ...


class RegisterPodSource(Protocol):
    """Function that the hook `kubeletx_register_pod_sources` gets as `register`; each call registers one pod source."""

    def __call__(
        self,
        name: str,
        factory: PodSourceFactory,
        *,
        settings: type[Any] | None = None,
        only_configured: bool = False,
    ) -> None:
        """Register a pod source.

        `name`, `settings`, `only_configured`: as for `RegisterHealthCheck`. `name` must not be the name of a built-in source; it
        becomes the value of annotation ``kubernetes.io/config.source`` of the source's pods.
        """
        ...


class RegisterPanel(Protocol):
    """Function that the hook `kubeletx_register_panels` gets as `register`; each call registers one panel."""

    def __call__(
        self, name: str, factory: PanelFactory, *, title: str = "", settings: type[Any] | None = None
    ) -> None:
        """Register a panel, which users see with `kubeletx panel NAME`.

        `name`, `settings`: as for `RegisterHealthCheck`. `title`: heading in lists of panels; empty: the name
        is used.
        """
        ...


class RegisterVolumeDriver(Protocol):
    """Function that the hook `kubeletx_register_volume_drivers` gets as `register`; each call registers one driver."""

    def __call__(
        self,
        name: str,
        factory: VolumeDriverFactory,
        *,
        sources: tuple[str, ...],
        settings: type[Any] | None = None,
    ) -> None:
        """Register a volume driver.

        `name`, `settings`: as for `RegisterHealthCheck`. `sources`: what the driver serves: fields of a v1 Volume
        that the agent does not prepare itself, such as ``csi``, or one driver of a field, such as
        ``flexVolume:example.com/ramdisk``. A driver that names the volume's driver is used before one that serves the
        whole field. No two registrations may serve the same source.
        """
        ...


class RegisterRemedy(Protocol):
    """Function that the hook `kubeletx_register_remedies` gets as `register`; each call registers one remedy."""

    def __call__(self, name: str, factory: RemedyFactory) -> None:
        """Register a remedy, which a remedyConfig uses with ``plugin: {name: NAME}``. `name`: as for `RegisterHealthCheck`."""
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
    """Register admission checks of new pods by calling `register` once for each."""


@hookspec
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """Register panels, which show information about the node, by calling `register` once for each."""


@hookspec
def kubeletx_register_volume_drivers(register: RegisterVolumeDriver) -> None:
    """Register volume drivers by calling `register` once for each."""


@hookspec
def kubeletx_register_remedies(register: RegisterRemedy) -> None:
    """Register remedies for sick nodes, which ``kubeletx remedy`` uses, by calling `register` once for each."""
