"""``kubeletx plugins``: lists the plugins found at start or by a reload, and whether each is ready."""

from __future__ import annotations

import click
import msgspec

from kubeletx.api import Unavailable
from kubeletx.server.views import PluginView

from ..connection.client import AgentClient, not_running
from ..options.common import output_option, with_agent
from ..options.exit_codes import ExitCode
from ..options.go_flags import command
from ..output.printers import Column, ObjectTable, print_object
from ..output.processes import process_text


class _Items(msgspec.Struct, frozen=True):
    items: tuple[PluginView, ...]


def _installed(agent: AgentClient) -> tuple[PluginView, ...]:
    """Load the installed plugins here, except those whose import ended the agent's process."""
    from kubeletx.agent.backend.about import plugin_views
    from kubeletx.agent.plugins import load_plugins
    from kubeletx.runtimes.plugins.call_markers import CallMarkers

    markers = CallMarkers(agent.socket_path.parent, writes=False)
    return tuple(plugin_views(load_plugins(markers=markers).loaded))


@command(short_help="Show the plugins that were found.")
@output_option("wide", "json", "yaml")
@with_agent
def plugins(agent: AgentClient, output: str | None) -> int:
    """Show the plugins that were found, with what they register and why one is not ready.

    'kubeletx plugins' and 'kubeletx plugin list' are the same. KUBELETX: the versions of kubeletx that the plugin is made for.

    While no agent runs, they are those that one would find. With -o wide also whether the plugin runs in processes of
    its own, with memory, CPU time and restarts of each process: NAME is that of a runtime, others the process of
    everything else that its distribution registers.
    """
    try:
        found = agent.get("/v1/plugins", _Items)
    except Unavailable as error:
        if error.message != not_running(agent.socket_path).message:
            raise
        click.echo(f"No agent is running on {agent.socket_path}; it would find these plugins:", err=True)
        found = _Items(items=_installed(agent))
    if output in ("json", "yaml"):
        print_object(found, output)
        return ExitCode.OK
    titles = (
        *("NAME", "DISTRIBUTION", "VERSION", "KUBELETX", "STATE", "KINDS", "TYPES", "REGISTERS", "REASON"),
        *("ISOLATION", "PROCESSES"),
    )
    rows = [
        [
            p.name,
            p.distribution,
            p.version,
            p.made_for,
            p.state,
            ",".join(p.kinds),
            ",".join(p.workload_types),
            ",".join(f"{one.hook}/{one.name}" for one in p.registrations),
            p.reason,
            p.isolation,
            "; ".join(f"{one.runtime or 'others'}: {process_text(one)}" for one in p.processes),
        ]
        for p in found.items
    ]
    columns = [Column(title, wide=title in ("ISOLATION", "PROCESSES")) for title in titles]
    for line in ObjectTable(columns, wide=output == "wide").render(rows):
        click.echo(line)
    return ExitCode.OK
