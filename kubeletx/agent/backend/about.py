"""The agent itself for the admin socket: version, health, plugins, configuration, metrics."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import kubeletx
from kubeletx.apiserver.node.claim import Reporting
from kubeletx.server.views import (
    ConfigValue,
    HealthView,
    MetricsView,
    PartHealth,
    PluginView,
    VersionView,
)

from ..config.tree import AgentConfig
from ..config.view import effective_values
from ..host.source_health import SourceHealth
from ..host.watchdog import Pulse
from ..plugin_reload import RunningPlugins
from ..plugins import LoadedPlugin
from .counted import Counted


class AgentBackend:
    """The agent part of `AdminBackend`."""

    def __init__(
        self,
        *,
        config: AgentConfig,
        agent_id: str,
        node_name: str,
        started_at: datetime,
        plugins: RunningPlugins,
        counted: Counted,
        pulse: Pulse,
        sources: SourceHealth,
        reporting: Reporting | None = None,
    ) -> None:
        """`reporting` None: the node is of no cluster."""
        self._config = config
        self._plugins = plugins
        self._counted = counted
        self._pulse = pulse
        self._sources = sources
        self._reporting = reporting
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
        """Who this agent is."""
        return self._version

    async def health(self) -> HealthView:
        """Each part; asks no runtime."""
        stall, failing = self._pulse.worst_seconds, self._sources.problems()
        return HealthView(
            parts=(
                PartHealth(
                    name="syncloop",
                    ok=self._pulse.is_alive,
                    message="" if self._pulse.is_alive else f"the event loop stalled for {stall:.1f} s",
                ),
                PartHealth(name="sources", ok=not failing, message="; ".join(failing)),
                *node_name_health(self._reporting),
            )
        )

    async def plugins(self) -> Sequence[PluginView]:
        """Every plugin found at start or by a reload."""
        return plugin_views(self._plugins.loaded)

    async def config_view(self) -> Sequence[ConfigValue]:
        """Effective settings and where each came from."""
        return effective_values(self._config)

    async def metrics(self) -> MetricsView:
        """What was counted so far."""
        from .metrics import (
            metrics_view,  # when it is first asked for: an agent that nobody scrapes is smaller
        )

        return metrics_view(self._node_name, self._counted)


def node_name_health(reporting: Reporting | None) -> list[PartHealth]:
    """Whether this agent alone has the node's name; empty: the node is of no cluster."""
    if reporting is None:
        return []
    return [PartHealth(name="node-name", ok=not reporting.problem, message=reporting.problem)]


def plugin_views(plugins: Iterable[LoadedPlugin]) -> Sequence[PluginView]:
    """What became of each plugin."""
    return [
        PluginView(
            name=one.name,
            version=one.version,
            state=one.state,
            kinds=one.kinds,
            workload_types=one.workload_types,
            reason=one.reason,
        )
        for one in plugins
    ]
