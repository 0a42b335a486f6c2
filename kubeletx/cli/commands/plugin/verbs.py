"""``kubeletx plugin``: the group of its subcommands, which are imported when they are used."""

from __future__ import annotations

import click

from ...options.group import Lazy, LazyGroup

VERBS = {
    "new": Lazy("kubeletx.cli.commands.plugin.new:new", "Write a new plugin that passes its contract suite."),
    "check": Lazy("kubeletx.cli.commands.plugin.check:check", "Check a plugin with its contract suites."),
    "install": Lazy("kubeletx.cli.commands.plugin.install:install", "Install a plugin for the agent."),
    "list": Lazy("kubeletx.cli.commands.plugins:plugins", "Show the plugins that were found."),
    "remove": Lazy("kubeletx.cli.commands.plugin.remove:remove", "Uninstall a plugin."),
}


@click.group(cls=LazyGroup, lazy=VERBS, short_help="Write, check, install, list and remove plugins.")
@click.pass_context
def plugin(ctx: click.Context) -> None:
    """Write, check, install, list and remove plugins."""
    if ctx.invoked_subcommand != "list" and ctx.obj is not None:
        ctx.obj.refuse_agent_flags()
