"""``kubeletx restart``: restarts containers of a pod."""

from __future__ import annotations

import click

from ...connection.client import AgentClient, pod_path
from ...options.common import duration, in_namespace, output_option, split_pod
from ...options.completing import complete_pods, container_option
from ...options.go_flags import command


@command(short_help="Restart containers of a pod.")
@click.argument("pod", shell_complete=complete_pods)
@container_option()
@duration("--timeout", "60s", "How long to wait until the containers run again; 0s: do not wait.")
@output_option("name")
@in_namespace
def restart(
    agent: AgentClient, pod: str, container: str, timeout: float, output: str | None, namespace: str
) -> None:
    """Restart all containers of POD, or the one of -c, as after a failed liveness probe: the restart is counted.

    'kubeletx vm reboot' reboots a machine.
    """
    name = split_pod(pod)
    path = pod_path(namespace, name, "restart")
    agent.wait_for(path, dict[str, tuple[str, ...]], timeout, container=container)
    click.echo(f"pod/{name}" if output else f"pod/{name} restarted")
