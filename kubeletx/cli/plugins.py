"""``kubeletx plugins``: what was found at start, and what became of it."""

from __future__ import annotations

import click
import msgspec

from kubeletx.server.views import PluginView

from .booleans import command
from .client import AgentClient
from .common import output_option, with_agent
from .exit_codes import ExitCode
from .printers import Column, Table, print_object


class _Items(msgspec.Struct, frozen=True):
    items: tuple[PluginView, ...]


@command(short_help="Show the plugins that were found.")
@output_option("json", "yaml")
@with_agent
def plugins(agent: AgentClient, output: str | None) -> int:
    """Show the plugins that were found, with their kinds and why one is not ready."""
    found = agent.get("/v1/plugins", _Items)
    if output:
        print_object(found, output)
        return ExitCode.OK
    titles = ("NAME", "VERSION", "STATE", "KINDS", "TYPES", "REASON")
    rows = [
        [p.name, p.version, p.state, ",".join(p.kinds), ",".join(p.workload_types), p.reason]
        for p in found.items
    ]
    for line in Table([Column(title) for title in titles]).render(rows):
        click.echo(line)
    return ExitCode.OK
