"""The agent itself for the admin socket: version, health, plugins, configuration, metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import kubeletx
from kubeletx.api import NotFound
from kubeletx.server.views import (
    ConfigValue,
    HealthView,
    MetricsView,
    PanelContent,
    PanelView,
    PartHealth,
    PluginView,
    RegistrationView,
    VersionView,
)

from ..config.tree import AgentConfig
from ..config.view import effective_values
from ..plugins import LoadedPlugin, RunningPlugins

if TYPE_CHECKING:
    from kubeletx.apiserver.node.claim import Reporting

    from ..plugins.rooms import PluginRooms
from .counted import Counted


class AgentBackend:
    """Answers questions of the admin socket about the agent itself. Implements `AboutVerbs`."""

    def __init__(
        self,
        *,
        config: AgentConfig,
        agent_id: str,
        node_name: str,
        started_at: datetime,
        plugins: RunningPlugins,
        counted: Counted,
        health: Callable[[], tuple[PartHealth, ...]],
        plugin_rooms: PluginRooms | None = None,
    ) -> None:
        """`health`: returns the health of every part of the agent. `plugin_rooms` None: plugins register only runtimes."""
        self._config = config
        self._plugins = plugins
        self._plugin_rooms = plugin_rooms
        self._counted = counted
        self._health = health
        self._node_name = node_name
        self._version = VersionView(
            version=kubeletx.__version__,
            pid=os.getpid(),
            started_at=started_at,
            node_name=node_name,
            agent_id=agent_id,
            root_dir=str(Path(config.root_dir).resolve()),
        )

    async def version(self) -> VersionView:
        """Version of this agent."""
        return self._version

    async def health(self) -> HealthView:
        """Health of each part of the agent; calls no runtime."""
        return HealthView(parts=self._health())

    async def plugins(self) -> Sequence[PluginView]:
        """Every plugin found at start or by a reload, with its state."""
        return plugin_views(self._plugins.loaded, self._plugin_rooms)

    async def list_panels(self) -> Sequence[PanelView]:
        """Every panel that plugins registered, by name."""
        return self._plugin_rooms.panels.list() if self._plugin_rooms is not None else ()

    async def show_panel(self, name: str) -> PanelContent:
        """Call the plugin for the panel's present content. Raises NotFound for an unknown panel."""
        if self._plugin_rooms is None:
            raise NotFound(f"no plugin registers panel {name!r}; known: none")
        return await self._plugin_rooms.panels.show(name)

    async def config_view(self) -> Sequence[ConfigValue]:
        """Effective settings, each with its origin."""
        return effective_values(self._config)

    async def metrics(self) -> MetricsView:
        """Counters and gauges of the agent at this time."""
        from .metrics import (
            metrics_view,  # imported at the first scrape: an agent without scrapes stays smaller
        )

        return metrics_view(self._node_name, self._counted)


def node_name_health(reporting: Reporting) -> tuple[PartHealth, ...]:
    """Health part ``node-name``: ok while this agent may report under the node's name; otherwise it has the reason."""
    return (PartHealth(name="node-name", ok=not reporting.problem, message=reporting.problem),)


def plugin_views(plugins: Iterable[LoadedPlugin], rooms: PluginRooms | None = None) -> Sequence[PluginView]:
    """State of each plugin and its registrations.

    `rooms`: knows the state of registrations other than runtimes; with None every registration is shown as
    ready.
    """
    states = rooms.states() if rooms is not None else {}
    return [
        _plugin_view(
            one,
            tuple(
                RegistrationView(
                    name=item.name,
                    hook=item.hook.value,
                    state=states[item.name].word if item.name in states else "ready",
                    reason=states[item.name].reason if item.name in states else "",
                )
                for item in one.registrations
            ),
        )
        for one in plugins
    ]


def _plugin_view(plugin: LoadedPlugin, registrations: tuple[RegistrationView, ...]) -> PluginView:
    """State of one plugin; a ready plugin is shown as degraded if one of its registrations is not ready."""
    broken = [one for one in registrations if one.state != "ready"]
    return PluginView(
        name=plugin.name,
        version=plugin.version,
        state="degraded" if plugin.state == "ready" and broken else plugin.state,
        kinds=plugin.kinds,
        workload_types=plugin.workload_types,
        registrations=registrations,
        reason=plugin.reason or "; ".join(one.reason for one in broken),
    )
