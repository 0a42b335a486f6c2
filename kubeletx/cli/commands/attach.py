"""``kubeletx attach``: joins the streams of a running container, or a machine's console."""

from __future__ import annotations

import click

from ..connection.client import AgentClient, pod_path
from ..connection.pods import BriefPod
from ..connection.remote import choose_container, run_in
from ..options.common import in_namespace, split_pod
from ..options.completing import complete_pods, container_option
from ..options.go_flags import boolean, command


@command(short_help="Join the streams of a running container.")
@click.argument("pod", shell_complete=complete_pods)
@container_option()
@boolean("-i", "--stdin", help="Pass standard input to the container.")
@boolean("-t", "--tty", help="Standard input is a terminal.")
@in_namespace
def attach(agent: AgentClient, pod: str, container: str, stdin: bool, tty: bool, namespace: str) -> int:
    """Connect to the streams of the main process of a container of POD."""
    target = agent.get(pod_path(namespace, split_pod(pod)), BriefPod)
    chosen = choose_container(target, container)
    if stdin and tty:
        click.echo("If you don't see a command prompt, try pressing enter.", err=True)
    return run_in(agent, "attach", target, chosen, (), stdin=stdin, tty=tty)
