"""``kubeletx restart``: restarts containers of a pod."""

from __future__ import annotations

import click

from ...connection.client import AgentClient, pod_path
from ...options.common import namespace_option, output_option, seconds_of, split_pod, with_agent
from ...options.completing import complete_pods, container_option
from ...options.go_flags import command

_LONGEST_SECONDS = 60.0


@command(short_help="Restart containers of a pod.")
@click.argument("pod", shell_complete=complete_pods)
@container_option()
@click.option(
    "--timeout",
    default="60s",
    metavar="DURATION",
    show_default=True,
    help="How long to wait until the containers run again; 0s: do not wait.",
)
@output_option("name")
@namespace_option
@with_agent
def restart(
    agent: AgentClient, pod: str, container: str, timeout: str, output: str | None, namespace: str
) -> None:
    """Restart all containers of POD, or the one of -c, as after a failed liveness probe: the restart is counted.

    'kubeletx vm reboot' reboots a machine.
    """
    seconds, name = seconds_of("--timeout", timeout), split_pod(pod)
    agent.call(
        "POST",
        pod_path(namespace, name, "restart"),
        dict[str, tuple[str, ...]],
        {"container": container, "timeoutSeconds": f"{seconds:g}"},
        timeout=seconds + _LONGEST_SECONDS,
    )
    click.echo(f"pod/{name}" if output else f"pod/{name} restarted")
