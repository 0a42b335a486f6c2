"""``kubeletx plugin remove``: uninstalls a plugin from the environment of the agent."""

from __future__ import annotations

import click

from kubeletx.api import Conflict, NotFound

from ...connection.client import AgentClient
from ...options.common import with_agent
from ...options.go_flags import command
from .environment import check_pip, interpreter_of, read_environment, run_pip


@command(short_help="Uninstall a plugin.")
@click.argument("name")
@with_agent
def remove(agent: AgentClient, name: str) -> None:
    """Uninstall the distribution of a plugin from the Python environment of the agent, with that environment's pip.

    NAME is the name of the plugin or of its distribution. A running agent keeps what it has loaded until its restart.
    Remove first the runtimes that the plugin serves: 'kubeletx runtime remove NAME'.
    """
    python, is_running = interpreter_of(agent)
    environment = read_environment(python)
    matching = {
        plugin.distribution for plugin in environment.plugins if name in (plugin.name, plugin.distribution)
    }
    if not matching:
        names = ", ".join(sorted(plugin.name for plugin in environment.plugins)) or "none"
        raise NotFound(f"plugin {name!r} is not installed in {environment.prefix}; installed are: {names}")
    if len(matching) > 1:
        raise Conflict(
            f"plugin {name!r} is of several distributions: {', '.join(sorted(matching))}; name one of them"
        )
    check_pip(environment, python)
    (distribution,) = matching
    run_pip(python, "uninstall", "--yes", distribution)
    for plugin in sorted(environment.plugins):
        if plugin.distribution == distribution:
            click.echo(
                f"plugin/{plugin.name} removed ({distribution} {plugin.version}) from {environment.prefix}"
            )
    if is_running:
        click.echo("The agent keeps what it has loaded; restart it.")
