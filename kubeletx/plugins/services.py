"""`PluginServices`: creates and connects the objects that plugins registered other than runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kubeletx.api import ObjectRef
from kubeletx.node.readiness import CheckFacts
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.server.views import PartHealth

from .admission import AdmissionChecks
from .callbacks import UNCONFIGURED, CallbackCounts, Callbacks, PluginState
from .health import HealthChecks, RunningCheck
from .host import PluginHostParts, RegistrationHost
from .panels import Panels
from .pod_sources import PodSources
from .registrations import Hook, Registration, Registrations, isolation_of_registration
from .settings import PluginLimits
from .volume_drivers import PluginVolumeDriver, close_all, open_all

if TYPE_CHECKING:  # loaded only when something is isolated, to save memory
    from kubeletx.runtimes.isolation.process import ChildUsage

    from .isolated.processes import PluginProcesses


class PluginServices:
    """The health checks, pod sources, admission checks, panels and volume drivers that plugins registered.

    The constructor calls the plugins' factories; the agent calls it once, at its start.
    """

    def __init__(
        self,
        registrations: Registrations,
        *,
        parts: PluginHostParts,
        own_settings: Mapping[str, Any],
        settings: PluginLimits,
        markers: CallMarkers,
        node: ObjectRef,
        isolation: Mapping[str, str] = MappingProxyType({}),
        configured: Collection[str] | None = None,
    ) -> None:
        """`own_settings`: the decoded settings of each registration that declares settings, by its name.

        `settings`: deadlines of calls to plugins. `markers`: remember a factory that ends the process. `node`: reference to
        the Node, for events of health checks. `isolation`: ``kubeletx.pluginIsolation``. `configured`: names of the
        sections of ``kubeletx.plugins``; what a plugin registered with `only_configured` is used with its section only.
        None: everything is used.
        """
        self._unconfigured = frozenset(
            registration.name
            for registration in registrations
            if registration.only_configured and configured is not None and registration.name not in configured
        )
        registrations = Registrations(
            registration
            for registration in registrations
            if registration.hook is not Hook.REMEDY and registration.name not in self._unconfigured
        )
        self._parts = parts
        self._markers = markers
        self._own_settings = own_settings
        self._hosts: list[RegistrationHost] = []
        self.callbacks: dict[str, Callbacks] = {}
        self.counts = CallbackCounts()
        self.processes = _processes(registrations, isolation, parts, own_settings, settings.variables)
        self.health_checks = HealthChecks(
            [
                RunningCheck(callbacks=callbacks)
                for callbacks in map(self._make, registrations.of(Hook.HEALTH_CHECK))
                if callbacks.is_made
            ],
            clock=parts.clock,
            events=parts.events,
            node=node,
            timeout_seconds=settings.health_check_seconds,
        )
        self.sources = PodSources(
            tuple(map(self._make, registrations.of(Hook.POD_SOURCE))),
            sync_seconds=settings.pod_source_sync_seconds,
        )
        self._admission = AdmissionChecks(
            map(self._make, registrations.of(Hook.ADMISSION_CHECK)),
            timeout_seconds=settings.admission_check_seconds,
        )
        self._reviewers = [
            registration
            for registration in registrations.of(Hook.ADMISSION_CHECK)
            if self._is_isolated(registration)
        ]
        self.review = self._admission.review if len(self._admission) else None
        """Reviews a new pod with the plugins' admission checks; None if there are none."""
        self.panels = Panels(
            map(self._make, registrations.of(Hook.PANEL)), timeout_seconds=settings.panel_seconds
        )
        self.volume_drivers = tuple(
            PluginVolumeDriver(self._make(registration), settings.volume_seconds)
            for registration in registrations.of(Hook.VOLUME_DRIVER)
        )

    def background(
        self, on_checks: Callable[[tuple[CheckFacts, ...]], None]
    ) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return the coroutine functions that the agent runs as tasks, by name.

        `on_checks`: called with the results of all health checks after each change.
        """
        tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "plugin-health": partial(self.health_checks.run, on_checks)
        }
        # a driver in a child process is opened by its first call: without a pod that uses it, no process starts
        drivers = [driver for driver in self.volume_drivers if not self._is_isolated(driver.registration)]
        if drivers:
            tasks["plugin-volumes"] = partial(open_all, drivers)
        if self.processes is not None and self._reviewers:
            # every pod needs them: otherwise the first pod waits for half a second of imports
            tasks["plugin-admission"] = partial(self.processes.prepare, self._reviewers, self._parts.clock)
        return tasks

    def checks(self) -> tuple[CheckFacts, ...]:
        """Return the last results of the plugins' health checks, for the node's conditions."""
        return self.health_checks.facts()

    def health(self) -> tuple[PartHealth, ...]:
        """Return the last results of the plugins' health checks as entries of ``/healthz``."""
        return self.health_checks.parts()

    def states(self) -> Mapping[str, PluginState]:
        idle = {
            name: PluginState(UNCONFIGURED, f"not used without the section kubeletx.plugins.{name}")
            for name in self._unconfigured
        }
        return {name: callback.state for name, callback in self.callbacks.items()} | idle

    def abandoned(self, name: str) -> dict[str, int]:
        """Return the numbers of cancelled calls of one registration that still run, by callback."""
        return self.callbacks[name].abandoned if name in self.callbacks else {}

    def usage(self, distribution: str) -> ChildUsage | None:
        """Return memory and CPU time of the process for the distribution's registrations; None if none runs."""
        return self.processes.usage(distribution) if self.processes is not None else None

    async def close(self) -> None:
        """Cancel running calls of panels, close volume drivers, and let idle threads of all registrations end."""
        await self.panels.close()
        await close_all(self.volume_drivers)
        if self.processes is not None:
            await self.processes.close()
        for host in self._hosts:
            host.close()

    def _is_isolated(self, registration: Registration) -> bool:
        """Return True if the registration runs in a child process."""
        return self.processes is not None and self.processes.runs(registration)

    def _make(self, registration: Registration) -> Callbacks:
        callbacks = Callbacks(registration, self._parts.clock, self.counts)
        self.callbacks[registration.name] = callbacks

        if self.processes is not None and self._is_isolated(registration):
            callbacks.keep(self.processes.proxy(registration))
            return callbacks
        host = RegistrationHost(registration, self._parts)
        self._hosts.append(host)

        def make() -> Any:
            with self._markers.around("factory", registration.name, registration.origin):
                return registration.factory(self._own_settings.get(registration.name), host)

        callbacks.make(make)
        return callbacks


def _processes(
    registrations: Registrations,
    isolation: Mapping[str, str],
    parts: PluginHostParts,
    own_settings: Mapping[str, Any],
    variables: Collection[str],
) -> PluginProcesses | None:
    """Return the processes of the registrations that do not run in the agent's process; None if all do."""
    isolated = [
        registration
        for registration in registrations
        if isolation_of_registration(registration, isolation) == "process"
    ]
    if not isolated:
        return None
    from .isolated.processes import PluginProcesses

    return PluginProcesses(isolated, parts=parts, own_settings=own_settings, variables=variables)
