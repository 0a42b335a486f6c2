"""``kubeletx debug``: adds an ephemeral container to an applied pod, and attaches to it."""

from __future__ import annotations

import secrets
import sys
from typing import Any, Final

import click
import msgspec

from kubeletx.api import Conflict, TimedOut

from ...connection.client import AgentClient, pod_path
from ...connection.pods import BriefPod
from ...connection.remote import run_in
from ...options.common import duration, in_namespace, looks, split_pod
from ...options.completing import complete_containers, complete_pods
from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command
from .written import applied_pod, send_changed

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@command(short_help="Add a container with other tools to a running pod.")
@click.argument("pod", shell_complete=complete_pods)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, metavar="IMAGE", help="Image of the container.")
@click.option("-c", "--container", default="", metavar="NAME", help="Name of the new container.")
@click.option(
    "--target",
    default="",
    metavar="CONTAINER",
    shell_complete=complete_containers,
    help="Container whose processes it sees.",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Variable of the container (repeatable).")
@boolean("-i", "--stdin", help="Attach to the container, with standard input.")
@boolean("-t", "--tty", help="Give the container a terminal.")
@duration("--timeout", "60s", "How long to wait for its start.")
@in_namespace
def debug(
    agent: AgentClient,
    pod: str,
    command: tuple[str, ...],
    image: str,
    container: str,
    target: str,
    env: tuple[str, ...],
    stdin: bool,
    tty: bool,
    timeout: float,
    namespace: str,
) -> int:
    """Add an ephemeral container to a pod of 'kubeletx apply': 'debug -it web --image=busybox -- sh'.

    It stays with the pod until the pod is deleted, and is not restarted.
    """
    name = split_pod(pod)
    manifest = applied_pod(agent, "debug", namespace, name)
    spec = manifest["spec"]
    if spec.get("virtualMachine"):
        raise Conflict(f"pod {namespace}/{name} is a machine; use 'kubeletx vm console {name}'")
    if not container:
        container = "debugger-" + "".join(secrets.choice(_LETTERS) for _ in range(5))
        click.echo(f"Defaulting debug container name to {container}.", err=True)
    added: dict[str, Any] = {"name": container, "image": image, "stdin": stdin, "tty": tty}
    if stdin and not tty:  # else containerd detaches at the end of standard input, and drops the last output
        added["stdinOnce"] = True
    added |= {"command": list(command)} if command else {}
    added |= {"targetContainerName": target} if target else {}
    added |= {"env": [_variable(text) for text in env]} if env else {}
    spec["ephemeralContainers"] = [*spec.get("ephemeralContainers", ()), added]
    send_changed(agent, msgspec.json.encode(manifest))
    if not stdin:
        return ExitCode.OK
    made, code = _wait(agent, namespace, name, container, timeout)
    if code is not None:  # a short command ends before anything can attach to it
        for piece in agent.chunks(pod_path(namespace, name, "log"), {"container": container}):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return code
    click.echo("If you don't see a command prompt, try pressing enter.", err=True)
    return run_in(agent, "attach", made, container, (), stdin=True, tty=tty)


def _variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--env {text!r} is not NAME=VALUE")
    return {"name": name, "value": value}


def _wait(
    agent: AgentClient, namespace: str, name: str, container: str, seconds: float
) -> tuple[BriefPod, int | None]:
    """Wait until the container runs or has ended; returns the pod, and the exit code of a container that has ended.

    Raises TimedOut after `seconds`.
    """
    state = None
    for _ in looks(seconds):
        pod = agent.get(pod_path(namespace, name), BriefPod)
        statuses = pod.status.ephemeral_container_statuses
        state = next((each.state for each in statuses if each.name == container), None)
        if state is not None and state.running is not None:
            return pod, None
        if state is not None and state.terminated is not None:
            return pod, state.terminated.exit_code
    waiting = state.waiting if state is not None else None
    why = f": {waiting.reason or ''} {waiting.message or ''}".rstrip(" :") if waiting is not None else ""
    raise TimedOut(f"container {container} does not run after {seconds:g}s{why}")
