"""``kubeletx plugin install``: installs a plugin into the environment of the agent."""

from __future__ import annotations

from pathlib import Path

import click

from ...connection.client import AgentClient
from ...options.common import with_agent
from ...options.go_flags import command
from .environment import check_pip, interpreter_of, read_environment, run_pip


@command(short_help="Install a plugin for the agent.")
@click.argument("distribution", metavar="DIST")
@click.argument("pip_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- PIP-OPTION...]")
@with_agent
def install(agent: AgentClient, distribution: str, pip_options: tuple[str, ...]) -> None:
    """Install a plugin into the Python environment of the agent, with that environment's pip.

    DIST is what pip takes: a name, a wheel, or the directory of a source. If no agent runs, the environment of this
    command is used. A running agent finds a new plugin with 'kubeletx runtime reload'.
    """
    python, is_running = interpreter_of(agent)
    before = read_environment(python)
    check_pip(before, python)
    # pip takes a path without a slash as a name
    is_source = Path(distribution, "pyproject.toml").exists()
    run_pip(python, "install", *pip_options, str(Path(distribution).resolve()) if is_source else distribution)
    after = read_environment(python)
    known = {plugin.name for plugin in before.plugins}
    changed = sorted(set(after.plugins) - set(before.plugins))
    for plugin in changed:
        click.echo(
            f"plugin/{plugin.name} installed ({plugin.distribution} {plugin.version}) in {after.prefix}"
        )
    if not changed:
        click.echo(f"Warning: {distribution} brought no new plugin and no new version of one.", err=True)
    elif is_running and {plugin.name for plugin in changed} & known:
        click.echo("The agent runs on with the version that it has loaded; restart it.")
    elif is_running:
        click.echo("Run 'kubeletx runtime reload', so that the agent loads it.")
