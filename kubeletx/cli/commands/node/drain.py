"""``kubeletx drain``, ``cordon`` and ``uncordon`` of the node."""

from __future__ import annotations

import click

from kubeletx.server.views import Progress, VersionView

from ...connection.client import AgentClient
from ...options.common import duration, with_agent
from ...options.exit_codes import ExitCode
from ...options.go_flags import Command, boolean
from ...output.progress import show_steps

PATH = "/v1/node/drain"
CORDON_PATH = "/v1/node/cordon"


@click.command(cls=Command, short_help="End all pods of the node; new ones are refused.")
@boolean("--all", "is_asked", help="End all pods.")
@boolean("--undo", help="Accept new pods again.")
@duration("--timeout", "5m", "How long to wait for the end.")
@with_agent
def drain(agent: AgentClient, is_asked: bool, undo: bool, timeout: float) -> int:
    """End all pods in the order of their priority, and refuse new ones until --undo or a restart of the agent.

    Pods end as at a shutdown of the host: Failed, with reason Terminated. Pods from files run again after a restart of the
    agent.
    """
    if is_asked == undo:
        raise click.UsageError("give one of --all and --undo")
    if undo:
        click.echo(agent.call("DELETE", PATH, Progress).message)
        return ExitCode.OK
    lines = agent.lines("POST", PATH, {"timeoutSeconds": timeout})
    return ExitCode.OK if show_steps("draining the node", lines) else ExitCode.FAILED


@click.command(cls=Command, short_help="Refuse new pods on this node.")
@click.argument("node", default="", required=False)
@with_agent
def cordon(agent: AgentClient, node: str) -> None:
    """Refuse new pods until 'kubeletx uncordon'; pods that run continue, and static pods still start.

    'kubeletx runtime cordon NAME' does this for one runtime. In a cluster, use 'kubectl cordon NODE'.
    """
    _cordon(agent, "POST", "cordon", node)


@click.command(cls=Command, short_help="Accept new pods again.")
@click.argument("node", default="", required=False)
@with_agent
def uncordon(agent: AgentClient, node: str) -> None:
    """Accept new pods again after 'kubeletx cordon'."""
    _cordon(agent, "DELETE", "uncordon", node)


def _cordon(agent: AgentClient, method: str, verb: str, name: str) -> None:
    """Send the request. `name`: argument of the command; only the name of the node is accepted."""
    if name and name != agent.get("/version", VersionView).node_name:
        raise click.UsageError(
            f"{name!r} is not this node; leave it out, or use 'kubeletx runtime {verb} {name}' for a runtime"
        )
    click.echo(agent.call(method, CORDON_PATH, Progress).message)
