"""Answers requests of the admin socket about the agent itself: version, health, plugins, configuration, metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import kubeletx
from kubeletx.api import NotFound
from kubeletx.api.counting import Metric, gauge
from kubeletx.node.info import KUBERNETES_VERSION, architecture, kubelet_version
from kubeletx.plugins.reload import RunningPlugins
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import (
    ConfigValue,
    HealthView,
    PanelContent,
    PanelView,
    PartHealth,
    PluginProcessView,
    PluginView,
    VersionView,
)

from ..config.tree import AgentConfig
from ..config.view import effective_values

if TYPE_CHECKING:
    from kubeletx.apiserver.node.claim import Reporting
    from kubeletx.plugins.services import PluginServices
from .plugins import plugin_views, process_view, processes_of, program_views


class AgentBackend:
    """Answers requests of the admin socket about the agent itself. Implements `AboutVerbs`."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        config: AgentConfig,
        agent_id: str,
        node_name: str,
        started_at: datetime,
        plugins: RunningPlugins,
        registry: RuntimeRegistry,
        metrics: Callable[[], Sequence[Metric]],
        health: Callable[[], tuple[PartHealth, ...]],
        plugin_services: PluginServices | None = None,
    ) -> None:
        """`metrics`, `health`: return the metrics and the health of every component of the agent.

        `plugin_services`: panels, health checks and other registrations of plugins; None if plugins register only
        runtimes.
        """
        self._config = config
        self._plugins = plugins
        self._plugin_services = plugin_services
        self._registry = registry
        self._metrics = metrics
        self._health = health
        self._node_name = node_name
        self._version = VersionView(
            version=kubeletx.__version__,
            pid=os.getpid(),
            started_at=started_at,
            node_name=node_name,
            agent_id=agent_id,
            root_dir=str(Path(config.root_dir).resolve()),
            python=sys.executable,
        )

    async def version(self) -> VersionView:
        return self._version

    async def health(self) -> HealthView:
        return HealthView(parts=self._health())

    async def plugins(self) -> Sequence[PluginView]:
        configured = self._config.runtimes.plugin_isolation
        installed = [
            msgspec.structs.replace(view, processes=self._processes_of(view))
            for view in plugin_views(self._plugins.loaded, self._plugin_services, configured)
        ]
        return [*installed, *program_views(self._registry)]

    def _processes_of(self, plugin: PluginView) -> tuple[PluginProcessView, ...]:
        processes = processes_of(self._registry, plugin.kinds)
        if self._plugin_services is None or not plugin.registrations:
            return processes
        other = process_view(self._plugin_services.usage(plugin.distribution))
        return processes if other is None else (*processes, other)

    async def list_panels(self) -> Sequence[PanelView]:
        return self._plugin_services.panels.list() if self._plugin_services is not None else ()

    async def show_panel(self, name: str) -> PanelContent:
        if self._plugin_services is None:
            raise NotFound(f"no plugin registers panel {name!r}; known: none")
        return await self._plugin_services.panels.show(name)

    async def config_view(self) -> Sequence[ConfigValue]:
        return effective_values(self._config)

    async def metrics(self) -> Sequence[Metric]:
        return (*_identity(self._node_name), *self._metrics())


def _identity(node_name: str) -> Iterator[Metric]:
    """Yield the metrics whose labels name the node and its versions; their value is 1."""
    yield gauge("kubelet_node_name", "Name of the node; the value is 1.", {node_name: 1}, "node")
    yield gauge("kubeletx_build_info", "Version of the agent.", {kubeletx.__version__: 1}, "version")
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    platform = f"{os.uname().sysname.lower()}/{architecture()}"
    yield gauge(
        "kubernetes_build_info",
        "Version of Kubernetes that the agent reports.",
        {(major, minor, kubelet_version(kubeletx.__version__), platform): 1},
        *("major", "minor", "git_version", "platform"),
    )


def node_name_health(reporting: Reporting) -> tuple[PartHealth, ...]:
    """Return health check ``node-name``: ok while this agent may report to the cluster as this node.

    It fails, with the reason, while another agent uses the same node name.
    """
    return (PartHealth(name="node-name", ok=not reporting.problem, message=reporting.problem),)
