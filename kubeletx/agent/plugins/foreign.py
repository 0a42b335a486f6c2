"""`load_agent_plugins`: loads the installed plugins, and imports only those of this repository in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kubeletx.runtimes.plugins.call_markers import CallMarkers

from .candidates import Candidate, LoadedPlugin
from .installed import installed_plugins
from .loading import Plugins, is_disabled, load_plugins

LOAD_SECONDS: Final = 30.0
"""Deadline of one plugin's import and hooks."""


async def load_agent_plugins(
    *,
    disabled: Collection[str] = (),
    markers: CallMarkers | None = None,
    sections: Mapping[str, Any] | None = None,
    origin: str = "",
    seconds: float = LOAD_SECONDS,
    variables: Collection[str] = (),
) -> Plugins:
    """Load the installed plugins: those of this repository in this process, all others in child processes.

    The arguments are those of `load_plugins`. `seconds`: deadline of one import in a child process. `variables`: names of
    further environment variables of child processes.
    """
    found = installed_plugins()
    others = [one for one in found if is_foreign(one) and not is_disabled(one, disabled)]
    reported: list[Candidate] = []
    if others:
        from .isolated.registering import registered_by  # here: most agents have no such plugins

        reported = await registered_by(
            others, seconds=seconds, sections=sections, origin=origin, variables=variables
        )
    return load_plugins(
        found, reported=reported, disabled=disabled, markers=markers, sections=sections, origin=origin
    )


def is_foreign(plugin: LoadedPlugin) -> bool:
    """Return True if only child processes import the plugin: it belongs to another project, and can be imported."""
    return not plugin.identity.is_own and not plugin.reason
