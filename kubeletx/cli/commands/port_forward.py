"""``kubeletx port-forward``: listens on local ports and forwards connections into a pod, until Ctrl-C."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import click

from kubeletx.api import InvalidConfig, KubeletxError

from ..connection.client import AgentClient, pod_path
from ..connection.pods import BriefPod
from ..connection.streams import run_remote
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
    wanted = [parse_forward(text) for text in ports]
    target = agent.get(pod_path(namespace, split_pod(pod)), BriefPod)
    path = pod_path(target.namespace, target.name, "portforward")
    forward(agent, path, address, wanted)


class Forward(NamedTuple):
    """A local port, and the port of the pod to which it is forwarded. `local` 0: any free port."""

    local: int
    remote: int


def parse_forward(text: str) -> Forward:
    """Parse ``8080:80``, ``80`` (the same port on both sides) or ``:80`` (any free local port)."""
    local, colon, remote = text.rpartition(":")
    numbers = (local or "0", remote) if colon else (remote, remote)
    if not all(number.isascii() and number.isdigit() and int(number) < 65536 for number in numbers):
        raise click.UsageError(f"{text!r} is not a port; write LOCAL:REMOTE, PORT or :REMOTE")
    if int(numbers[1]) == 0:
        raise click.UsageError(f"{text!r}: the pod's port must not be 0")
    return Forward(int(numbers[0]), int(numbers[1]))


def forward(agent: AgentClient, path: str, address: str, ports: Sequence[Forward]) -> None:
    """Listen on local ports and forward each connection to the pod, until interrupted.

    `path`: the pod's port-forward path on the admin socket. `address`: local IP address. Raises InvalidConfig if a
    local port cannot be used.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for port in ports:
            server = stack.enter_context(_listen(address, port))
            selector.register(server, selectors.EVENT_READ, (server, port.remote))
        while True:
            for key, _ in selector.select():
                server, remote = key.data
                accepted, _peer = server.accept()
                number = server.getsockname()[1]
                click.echo(f"Handling connection for {number}")
                threading.Thread(
                    target=_carry,
                    args=(agent, path, accepted, number, remote),
                    name="port-forward",
                    daemon=True,
                ).start()


def _listen(address: str, port: Forward) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, port.local), family=family)
    except OSError as err:
        raise InvalidConfig(
            field=f"port {port.local}",
            problem=f"cannot listen on {address}: {err.strerror}",
            fix="choose another",
        ) from err
    click.echo(f"Forwarding from {address}:{server.getsockname()[1]} -> {port.remote}")
    return server


def _carry(agent: AgentClient, path: str, local: socket.socket, number: int, remote: int) -> None:
    """Copy bytes between a local connection and the pod until the pod's side ends. The local side may half-close before."""
    descriptor = local.fileno()
    with local:
        try:
            run_remote(
                agent,
                path,
                [("port", str(remote))],
                stdin=True,
                descriptors=(descriptor, descriptor, descriptor),
            )
        except KubeletxError as err:
            click.echo(f"Error: forwarding {number} -> {remote}: {err}", err=True)
        except OSError:
            pass  # the local side disconnected
