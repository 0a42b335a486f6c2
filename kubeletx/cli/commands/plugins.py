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


class _Items(msgspec.Struct, frozen=True):
    items: tuple[PluginView, ...]


def _installed() -> tuple[PluginView, ...]:
    from kubeletx.agent.backend.about import plugin_views
    from kubeletx.agent.plugins import load_plugins

    return tuple(plugin_views(load_plugins().loaded))


@command(short_help="Show the plugins that were found.")
@output_option("json", "yaml")
@with_agent
def plugins(agent: AgentClient, output: str | None) -> int:
    """Show the plugins that were found, with what they register and why one is not ready.

    While no agent runs, they are those that one would find.
    """
    try:
        found = agent.get("/v1/plugins", _Items)
    except Unavailable as error:
        if error.message != not_running(agent.socket_path).message:
            raise
        click.echo(f"No agent is running on {agent.socket_path}; it would find these plugins:", err=True)
        found = _Items(items=_installed())
    if output:
        print_object(found, output)
        return ExitCode.OK
    titles = ("NAME", "VERSION", "STATE", "KINDS", "TYPES", "REGISTERS", "REASON")
    rows = [
        [
            p.name,
            p.version,
            p.state,
            ",".join(p.kinds),
            ",".join(p.workload_types),
            ",".join(f"{one.hook}/{one.name}" for one in p.registrations),
            p.reason,
        ]
        for p in found.items
    ]
    for line in ObjectTable([Column(title) for title in titles]).render(rows):
        click.echo(line)
    return ExitCode.OK
