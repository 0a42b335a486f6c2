"""Decides which runtimes run in a process of their own (`isolation`: process), and which in the agent's process (none).

The first of these that is given decides: ``isolation=`` in the endpoint's URL; ``kubeletx.pluginIsolation`` of the
configuration, by runtime kind; the distribution of the plugin. Plugins of this repository run in the agent's process,
all others in a process of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kubeletx.api import InvalidConfig

from ..plugins.identity import PluginIdentity
from .kinds import KindTable, RuntimeKind
from .urls import ISOLATIONS

FIELD: Final = "kubeletx.pluginIsolation"


def isolation_of(given: str, kind: RuntimeKind, configured: Mapping[str, str]) -> str:
    """Return process or none for one runtime.

    `given`: isolation of its endpoint; empty if the URL has none. `configured`: ``kubeletx.pluginIsolation``.
    """
    return given or configured.get(kind.name) or default_isolation(kind.distribution)


def default_isolation(distribution: str) -> str:
    """Return process or none for a plugin without configured isolation.

    `distribution`: name of the plugin's Python distribution; empty if the agent itself registers the kind.
    """
    return "none" if PluginIdentity(distribution=distribution).is_own else "process"


def check_isolation(
    configured: Mapping[str, str], kinds: KindTable, origin: str = "", others: Collection[str] = ()
) -> None:
    """Raise InvalidConfig if ``kubeletx.pluginIsolation`` has an unknown name or value.

    `origin`: the file that contains it, for messages. `others`: registered names that are not runtime kinds.
    """
    for name, value in configured.items():
        if value not in ISOLATIONS:
            raise InvalidConfig(
                obj=origin,
                field=f"{FIELD}.{name}",
                problem=f"{value!r} is unknown",
                fix=f"use one of: {', '.join(ISOLATIONS)}",
            )
        if name not in kinds and name not in others and not kinds.may_come(name):
            known = ", ".join(sorted((*(kind.name for kind in kinds), *others))) or "none installed"
            raise InvalidConfig(
                obj=origin,
                field=f"{FIELD}.{name}",
                problem=f"no plugin registers {name!r}",
                fix=f"install that plugin, remove the entry, or use one of: {known}",
            )
