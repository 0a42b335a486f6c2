"""``kubeletx port-forward``: listens on local ports and forwards connections into a pod, until Ctrl-C."""

from __future__ import annotations

import click

from ..connection.client import AgentClient, pod_path
from ..connection.pods import BriefPod
from ..options.common import in_namespace, split_pod
from ..options.completing import complete_pods
from ..options.go_flags import command


@command("port-forward", short_help="Forward local ports to a pod.")
@click.argument("pod", shell_complete=complete_pods)
@click.argument("ports", nargs=-1, required=True, metavar="LOCAL:REMOTE...")
@click.option(
    "--address", default="127.0.0.1", show_default=True, metavar="IP", help="Local address to listen on."
)
@in_namespace
def port_forward(agent: AgentClient, pod: str, ports: tuple[str, ...], address: str, namespace: str) -> None:
    """Forward local ports to ports of POD, until Ctrl-C.

    A pod on standby stays frozen until a connection arrives, and is frozen again when all connections have ended.
    """
    from ..connection.forwarding import forward, parse_forward

    wanted = [parse_forward(text) for text in ports]
    target = agent.get(pod_path(namespace, split_pod(pod)), BriefPod)
    path = pod_path(target.namespace, target.name, "portforward")
    forward(agent, path, address, wanted)
