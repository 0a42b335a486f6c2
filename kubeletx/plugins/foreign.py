"""`load_agent_plugins`: loads the installed plugins; child processes import the plugins of other projects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeletx.runtimes.plugins.call_markers import CallMarkers

from .candidates import Candidate, LoadedPlugin
from .installed import installed_plugins
from .loading import Plugins, is_disabled, load_plugins
from .settings import PluginLimits


async def load_agent_plugins(
    settings: PluginLimits,
    *,
    markers: CallMarkers | None = None,
    sections: Mapping[str, Any] | None = None,
    origin: str = "",
) -> Plugins:
    """Load the installed plugins: kubeletx's own in this process, all others in child processes.

    `settings`: which plugins are disabled, and the limits of child processes. `markers`, `sections`, `origin`: as for
    `load_plugins`.
    """
    installed = installed_plugins()
    return load_plugins(
        installed,
        reported=await imported_elsewhere(installed, settings, sections, origin),
        disabled=settings.disabled,
        markers=markers,
        sections=sections,
        origin=origin,
    )


async def imported_elsewhere(
    plugins: Iterable[LoadedPlugin],
    settings: PluginLimits,
    sections: Mapping[str, Any] | None,
    origin: str = "",
) -> list[Candidate]:
    """Import the plugins of other projects in child processes, except disabled and damaged plugins."""
    foreign = [
        plugin
        for plugin in plugins
        if not plugin.identity.is_own and not plugin.reason and not is_disabled(plugin, settings.disabled)
    ]
    if not foreign:
        return []
    from .isolated.registering import registered_by  # here: most agents have no such plugins

    return await registered_by(foreign, settings, sections, origin)
