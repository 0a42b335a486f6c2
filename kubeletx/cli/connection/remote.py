"""Code that ``exec`` and ``attach`` share: choice of the container, streams and exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubeletx.api import VM, names

from .client import AgentClient, pod_path
from .pods import BriefPod

if TYPE_CHECKING:
    from kubeletx.kube.types.core import Pod

LEAVE = b"\x1d"
"""Ctrl-], the key that ends a session on a machine's console. The guest gets all other keys."""


def is_machine(pod: Pod | BriefPod) -> bool:
    """Return True if the pod is a virtual machine, so that attaching to it opens the machine's console."""
    return (
        pod.spec.virtual_machine is not None
        or pod.status.virtual_machine_status is not None
        or pod.metadata.annotations.get(names.WORKLOAD_TYPE) == VM
    )


def choose_container(pod: BriefPod, wanted: str) -> str:
    """Return the name of the container to use: `wanted` if set, else the pod's default container, else its first.

    The annotation ``kubectl.kubernetes.io/default-container`` names the default. If the pod has several containers and
    no default, prints the choice on standard error. For a pod with a virtual machine, returns `wanted` even if empty.
    """
    if wanted or pod.spec.virtual_machine is not None:
        return wanted
    containers = [container.name for container in pod.spec.containers]
    preferred = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    chosen = preferred if preferred in containers else next(iter(containers), "")
    if len(containers) > 1 and not preferred:
        others = ", ".join([*containers, *(f"{c.name} (init)" for c in pod.spec.init_containers)])
        click.echo(f'Defaulted container "{chosen}" out of: {others}', err=True)
    return chosen


def run_in(
    agent: AgentClient,
    verb: str,
    pod: BriefPod,
    container: str,
    command: tuple[str, ...],
    *,
    stdin: bool,
    tty: bool,
) -> int:
    """Run a command in a container or join its streams (`verb`: exec, attach); returns its exit code.

    The container gets this process's standard input, output and error. `command`: for exec. `stdin`: pass standard
    input on. `tty`: use a terminal, if standard input is one.
    """
    from .streams import has_terminal, run_remote

    if tty and not has_terminal():
        click.echo("Unable to use a TTY - input is not a terminal", err=True)
        tty = False
    query = [("command", word) for word in command]
    query += [("container", container), ("stdout", "1"), ("stderr", str(int(not tty)))]
    query += [("stdin", str(int(stdin))), ("tty", str(int(tty)))]
    path = pod_path(pod.namespace, pod.name, verb)
    terminal = tty and stdin
    leave = LEAVE if terminal and verb == "attach" and is_machine(pod) else b""
    if leave:
        click.echo("Ctrl-] leaves the console.", err=True)
    code = run_remote(agent, path, query, stdin=stdin, terminal=terminal, leave=leave)
    if code:
        click.echo(f"command terminated with exit code {code}", err=True)
    return code
