"""``kubeletx exec``: runs a command in a container, and exits with the command's exit code."""

from __future__ import annotations

import click

from ..connection.client import AgentClient, pod_path
from ..connection.pods import BriefPod
from ..connection.remote import choose_container, run_in
from ..options.common import in_namespace, split_pod
from ..options.completing import complete_pods, container_option
from ..options.go_flags import boolean, command


@command("exec", short_help="Run a command in a container.")
@click.argument("pod", shell_complete=complete_pods)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@container_option()
@boolean("-i", "--stdin", help="Pass standard input to the container.")
@boolean("-t", "--tty", help="Give the command a terminal.")
@in_namespace
def exec_(
    agent: AgentClient,
    pod: str,
    command: tuple[str, ...],
    container: str,
    stdin: bool,
    tty: bool,
    namespace: str,
) -> int:
    """Run COMMAND in a container of POD. Write -- before a command with flags.

    The exit code is COMMAND's.
    """
    target = agent.get(pod_path(namespace, split_pod(pod)), BriefPod)
    return run_in(agent, "exec", target, choose_container(target, container), command, stdin=stdin, tty=tty)
