"""``kubeletx drain``: ends all pods of the node as a shutdown of the host does."""

from __future__ import annotations

import click
import msgspec

from kubeletx.server.views import Progress

from ...connection.client import AgentClient
from ...options.common import seconds_of, with_agent
from ...options.exit_codes import ExitCode
from ...options.go_flags import Command, boolean

PATH = "/v1/node/drain"


@click.command(cls=Command, short_help="End all pods of the node; new ones are refused.")
@boolean("--all", "is_asked", help="End all pods.")
@boolean("--undo", help="Accept new pods again.")
@click.option(
    "--timeout", default="5m", metavar="DURATION", show_default=True, help="How long to wait for the end."
)
@with_agent
def drain(agent: AgentClient, is_asked: bool, undo: bool, timeout: str) -> int:
    """End all pods in the order of their priority, and refuse new ones until --undo or a restart of the agent.

    Pods end as at a shutdown of the host: Failed, with reason Terminated. Pods from files run again after a restart of the
    agent.
    """
    if is_asked == undo:
        raise click.UsageError("give one of --all and --undo")
    if undo:
        click.echo(agent.call("DELETE", PATH, Progress).message)
        return ExitCode.OK
    done = False
    for line in agent.lines("POST", PATH, {"timeoutSeconds": seconds_of("--timeout", timeout)}):
        step = msgspec.json.decode(line.object, type=Progress)
        click.echo(step.message)
        done = step.done
    return ExitCode.OK if done else ExitCode.FAILED
