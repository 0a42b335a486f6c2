"""``kubeletx version``: prints this command's version and the running agent's."""

from __future__ import annotations

import click

from kubeletx import __version__
from kubeletx.api import KubeletxError
from kubeletx.kube.text.human import age
from kubeletx.server.views import VersionView

from ..connection.client import AgentClient
from ..options.common import output_option, with_agent
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..output.printers import print_object
from ..output.words import now


@command(short_help="Show the versions of this command and of the agent.")
@boolean("--client", "client_only", help="Ask no agent.")
@output_option("json", "yaml")
@with_agent
def version(agent: AgentClient, client_only: bool, output: str | None) -> int:
    """Show the versions of this command and of the agent."""
    agent_version, error = None, None
    if not client_only:
        try:
            agent_version = agent.get("/version", VersionView)
        except KubeletxError as err:
            error = err
    if output:
        print_object(
            {"clientVersion": __version__, **({"agent": agent_version} if agent_version else {})}, output
        )
    else:
        click.echo(f"Client version: {__version__}")
        if agent_version is not None:
            click.echo(f"Agent version:  {agent_version.version}")
            up = age(agent_version.started_at, now())
            click.echo(f"Agent:          {agent_version.node_name}, pid {agent_version.pid}, up {up}")
    if error is not None:
        click.echo(f"Error: {error}", err=True)
        return ExitCode.FAILED
    return ExitCode.OK
