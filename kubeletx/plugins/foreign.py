"""`load_agent_plugins`: loads the installed plugins; child processes import the plugins of other projects."""

from __future__ import annotations

from collections.abc import Mapping
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

    `settings`: of plugins, with those that are disabled and the limits of child processes. `markers`, `sections`,
    `origin`: as for `load_plugins`.
    """
    found = installed_plugins()
    disabled = settings.disabled
    others = [one for one in found if is_foreign(one) and not is_disabled(one, disabled)]
    reported: list[Candidate] = []
    if others:
        from .isolated.registering import registered_by  # here: most agents have no such plugins

        reported = await registered_by(others, settings, sections, origin)
    return load_plugins(
        found, reported=reported, disabled=disabled, markers=markers, sections=sections, origin=origin
    )


def is_foreign(plugin: LoadedPlugin) -> bool:
    """Return True if only child processes import the plugin: it belongs to another project, and can be imported."""
    return not plugin.identity.is_own and not plugin.reason
