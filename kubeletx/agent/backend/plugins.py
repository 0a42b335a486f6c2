"""Views of plugins, of their processes, and of the programs that serve runtimes of the kind ``exec``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kubeletx.plugins.candidates import LoadedPlugin
from kubeletx.plugins.registrations import isolation_of_registration
from kubeletx.runtimes.endpoints.isolation_rule import default_isolation
from kubeletx.runtimes.endpoints.programs import PROGRAMS
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import PluginProcessView, PluginView, RegistrationView

if TYPE_CHECKING:  # loaded only when something is isolated or registered, to save memory
    from kubeletx.plugins.services import PluginServices
    from kubeletx.runtimes.isolation.process import ChildUsage


def plugin_views(
    plugins: Iterable[LoadedPlugin],
    services: PluginServices | None = None,
    isolation: Mapping[str, str] = MappingProxyType({}),
) -> Sequence[PluginView]:
    """Return the state of each plugin and of its registrations.

    `services`: has the state of registrations other than runtimes; with None every registration is shown as ready.
    `isolation`: ``kubeletx.pluginIsolation`` of the configuration.
    """
    states = services.states() if services is not None else {}
    return [
        _plugin_view(
            plugin,
            tuple(
                RegistrationView(
                    name=item.name,
                    hook=item.hook.value,
                    state=states[item.name].word if item.name in states else "ready",
                    reason=states[item.name].reason if item.name in states else "",
                    abandoned_calls=services.abandoned(item.name) if services is not None else {},
                )
                for item in plugin.registrations
            ),
            isolation,
        )
        for plugin in plugins
    ]


def _plugin_view(
    plugin: LoadedPlugin, registrations: tuple[RegistrationView, ...], isolation: Mapping[str, str]
) -> PluginView:
    """Return the state of one plugin; a ready plugin is shown as degraded if one of its registrations is not ready."""
    default = default_isolation(plugin.distribution)
    isolations = dict.fromkeys(
        [isolation.get(kind, default) for kind in plugin.kinds]
        + [isolation_of_registration(registration, isolation) for registration in plugin.registrations]
    )
    broken = [
        registration for registration in registrations if registration.state not in ("ready", "unconfigured")
    ]
    return PluginView(
        name=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        made_for=plugin.made_for,
        state="degraded" if plugin.state == "ready" and broken else plugin.state,
        kinds=plugin.kinds,
        workload_types=plugin.workload_types,
        registrations=registrations,
        reason=plugin.reason or "; ".join(registration.reason for registration in broken),
        isolation=",".join(isolations),
    )


def process_of(registry: RuntimeRegistry, name: str) -> PluginProcessView | None:
    """Return the process in which the plugin of the runtime `name` runs.

    None if that is the agent's process, or while no process of the plugin runs.
    """
    handle = registry.get(name)
    isolated = registry.fleet.isolated.get(handle.name)
    usage = isolated.usage() if isolated is not None else None
    return process_view(usage, name)


def process_view(usage: ChildUsage | None, runtime: str = "") -> PluginProcessView | None:
    """Return the view of a process; None if it does not run. `runtime`: empty for a process of other hooks."""
    if usage is None:
        return None
    return PluginProcessView(
        runtime=runtime,
        pid=usage.pid,
        memory_bytes=usage.memory_bytes,
        cpu_seconds=round(usage.cpu_seconds, 2),
        restarts=usage.restarts,
    )


def processes_of(registry: RuntimeRegistry, kinds: Iterable[str]) -> tuple[PluginProcessView, ...]:
    """Return the processes of all runtimes of these kinds, in the order of the runtimes."""
    wanted = set(kinds)
    views = [process_of(registry, handle.name) for handle in registry.handles() if handle.kind in wanted]
    return tuple(view for view in views if view is not None)


def program_views(registry: RuntimeRegistry) -> tuple[PluginView, ...]:
    """Return one plugin for each program of an endpoint, in the order of the runtimes."""
    by_path: dict[str, list[RuntimeHandle]] = {}
    for handle in registry.handles():
        if handle.kind == PROGRAMS.name:
            by_path.setdefault(unquote(urlsplit(handle.endpoint.url).path), []).append(handle)
    return tuple(_program_view(registry, path, handles) for path, handles in by_path.items())


def _program_view(registry: RuntimeRegistry, path: str, handles: Iterable[RuntimeHandle]) -> PluginView:
    handles = tuple(handles)
    broken = [handle for handle in handles if not handle.state.is_ready]
    versions = dict.fromkeys(
        handle.last_version.version for handle in handles if handle.last_version is not None
    )
    processes = [process_of(registry, handle.name) for handle in handles]
    return PluginView(
        name=PurePath(path).name or PROGRAMS.name,
        distribution=path,
        version=",".join(versions),
        state="degraded" if broken else "ready",
        kinds=(PROGRAMS.name,),
        workload_types=tuple(sorted({handle.workload_type for handle in handles})),
        reason="; ".join(f"runtime {handle.name}: {handle.state.message}" for handle in broken),
        isolation="process",
        processes=tuple(process for process in processes if process is not None),
    )
