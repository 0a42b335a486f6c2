"""``kubeletx port-forward``: local ports that lead into a pod, until Ctrl-C."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import click

from kubeletx.kube.core import Pod

from .booleans import command
from .client import AgentClient, pod_path
from .common import namespace_option, split_pod, with_agent
from .completing import complete_pods


class Forward(NamedTuple):
    """`local` 0: any free port."""

    local: int
    remote: int


def parse_forward(text: str) -> Forward:
    """``8080:80``, ``80`` (the same on both sides) or ``:80`` (any local port)."""
    local, colon, remote = text.rpartition(":")
    numbers = (local or "0", remote) if colon else (remote, remote)
    if not all(number.isascii() and number.isdigit() and int(number) < 65536 for number in numbers):
        raise click.UsageError(f"{text!r} is not a port; write LOCAL:REMOTE, PORT or :REMOTE")
    if int(numbers[1]) == 0:
        raise click.UsageError(f"{text!r}: the pod's port must not be 0")
    return Forward(int(numbers[0]), int(numbers[1]))


@command("port-forward", short_help="Forward local ports to a pod.")
@click.argument("pod", shell_complete=complete_pods)
@click.argument("ports", nargs=-1, required=True, metavar="LOCAL:REMOTE...")
@click.option(
    "--address", default="127.0.0.1", show_default=True, metavar="IP", help="Local address to listen on."
)
@namespace_option
@with_agent
def port_forward(agent: AgentClient, pod: str, ports: tuple[str, ...], address: str, namespace: str) -> int:
    """Forward local ports to ports of POD, until Ctrl-C."""
    from .forwarding import forward

    wanted = [parse_forward(text) for text in ports]
    found = agent.get(pod_path(namespace, split_pod(pod)), Pod)
    path = pod_path(found.namespace, found.name, "portforward")
    asyncio.run(forward(agent.socket_path, path, address, wanted))
    return 0
