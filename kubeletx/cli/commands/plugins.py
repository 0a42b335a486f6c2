"""``kubeletx plugins``: lists the plugins found at start or by a reload, and whether each is ready."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeletx.api import Unavailable
from kubeletx.server.views import PluginView

from ..connection.client import AgentClient, not_running
from ..options.common import output_option, with_agent
from ..options.go_flags import command
from ..options.settings import Invocation
from ..output.printers import Column, print_list
from ..output.words import process_text

if TYPE_CHECKING:
    from kubeletx.agent.config.tree import AgentConfig


def _abandoned(plugin: PluginView) -> int:
    return sum(sum(registration.abandoned_calls.values()) for registration in plugin.registrations)


def _processes(plugin: PluginView) -> str:
    return "; ".join(
        f"{process.runtime or 'others'}: {process_text(process)}" for process in plugin.processes
    )


_COLUMNS = (
    Column("NAME", lambda plugin, _: plugin.name),
    Column("DISTRIBUTION", lambda plugin, _: plugin.distribution, priority=3),
    Column("VERSION", lambda plugin, _: plugin.version),
    Column("KUBELETX", lambda plugin, _: plugin.made_for, priority=2),
    Column("STATE", lambda plugin, _: plugin.state, state=True),
    Column("KINDS", lambda plugin, _: ",".join(plugin.kinds), priority=1),
    Column("TYPES", lambda plugin, _: ",".join(plugin.workload_types), priority=4),
    Column(
        "REGISTERS",
        lambda plugin, _: ",".join(
            f"{registration.hook}/{registration.name}" for registration in plugin.registrations
        ),
        priority=5,
    ),
    Column("REASON", lambda plugin, _: plugin.reason, long=True),
    Column("ISOLATION", lambda plugin, _: plugin.isolation, wide=True),
    Column("ABANDONED", lambda plugin, _: str(_abandoned(plugin)), wide=True),
    Column("PROCESSES", lambda plugin, _: _processes(plugin), wide=True),
)


def _installed(root_dir: Path, config: AgentConfig | None) -> Sequence[PluginView]:
    """Load the installed plugins as an agent with this configuration would. `config` None: no configuration is known."""
    import asyncio

    from kubeletx.agent.backend.plugins import plugin_views
    from kubeletx.agent.config.tree import PluginSettings
    from kubeletx.plugins.foreign import load_agent_plugins
    from kubeletx.runtimes.plugins.call_markers import CallMarkers

    if config is None:
        loading, isolation = (
            load_agent_plugins(PluginSettings(), markers=CallMarkers(root_dir, writes=False)),
            {},
        )
    else:
        loading = load_agent_plugins(
            config.plugins,
            markers=CallMarkers(config.root_dir, writes=False),
            sections=config.runtimes.plugins,
            origin=config.origins.get("runtimes.plugins", ""),
        )
        isolation = dict(config.runtimes.plugin_isolation)
    return plugin_views(asyncio.run(loading).loaded, isolation=isolation)


def _found(agent: AgentClient, invocation: Invocation) -> Sequence[PluginView]:
    if invocation.has_agent_flags:
        return _installed(agent.socket_path.parent, invocation.load())
    try:
        return agent.items("/v1/plugins", PluginView)
    except Unavailable as error:
        if error.message != not_running(agent.socket_path).message:
            raise
        click.echo(f"No agent is running on {agent.socket_path}; it would find these plugins:", err=True)
        return _installed(agent.socket_path.parent, None)


@command(short_help="Show the plugins that were found.")
@output_option("wide", "json", "yaml")
@with_agent
def plugins(agent: AgentClient, output: str | None) -> None:
    """Show the plugins that were found, with what they register and why one is not ready.

    'kubeletx plugins' and 'kubeletx plugin list' are the same. KUBELETX: the versions of kubeletx that the plugin is made for.

    While no agent runs, they are the plugins that an agent would find. With agent flags before 'plugins', such as
    --config and --disable-plugin, no agent is asked: the plugins of an agent started with these flags are shown.

    With -o wide also the number of calls that were cancelled and still run, except calls to runtimes (ABANDONED), and
    whether the plugin runs in processes of its own, with memory, CPU time and restarts of each
    process: NAME is a runtime, others the process of everything else that its distribution registers.
    """
    listed = _found(agent, click.get_current_context().obj)
    print_list(listed, output, "plugin", _COLUMNS)
