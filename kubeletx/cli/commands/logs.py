"""``kubeletx logs``: prints the log of one container, of all containers of a pod, or of several pods."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import click

from ..connection.client import AgentClient, Parameters, pod_path
from ..connection.pods import BriefPod
from ..connection.remote import choose_container
from ..options.common import in_namespace, seconds_of, split_pod
from ..options.completing import complete_pods, container_option
from ..options.go_flags import boolean, command
from ..output.log_lines import merge, with_prefix


@command(short_help="Print the log of a container.")
@click.argument("pod", default="", required=False, shell_complete=complete_pods)
@click.argument("container", default="", required=False)
@container_option("named")
@boolean(
    "--all-containers", help="Logs of all containers, one after the other; with -f lines as they arrive."
)
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Logs of all pods with these labels.")
@click.option(
    "--max-log-requests",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    show_default=True,
    help="Most logs to follow at a time.",
)
@boolean("--prefix", help="Begin each line with [pod/NAME/CONTAINER].")
@boolean("-f", "--follow", help="Keep printing new lines.")
@boolean("-p", "--previous", help="Log of the previous run of the container.")
@click.option(
    "--tail",
    type=int,
    default=None,
    metavar="N",
    help="Only the last lines; -1: all, which is the default without --selector; with it: 10.",
)
@click.option(
    "--since", default="", metavar="DURATION", help="Only lines newer than a duration such as 5s, 2m or 3h."
)
@click.option(
    "--since-time", default=None, metavar="TIME", help="Only lines after a time such as 2006-01-02T15:04:05Z."
)
@boolean("--timestamps", help="Begin each line with its time.")
@click.option(
    "--limit-bytes",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Print at most this number of bytes.",
)
@in_namespace
def logs(
    agent: AgentClient,
    pod: str,
    container: str,
    named: str,
    all_containers: bool,
    selector: str,
    max_log_requests: int,
    prefix: bool,
    follow: bool,
    previous: bool,
    tail: int | None,
    since: str,
    since_time: str | None,
    timestamps: bool,
    limit_bytes: int | None,
    namespace: str,
) -> None:
    """Print the log of a container of POD, or of the pods with the labels of --selector."""
    if since and since_time:
        raise click.UsageError("give --since or --since-time, not both")
    if all_containers and (named or container):
        raise click.UsageError(f"give --all-containers or the container {named or container!r}, not both")
    if bool(pod) == bool(selector):
        raise click.UsageError("name a pod, or give --selector")
    targets = _pods(agent, namespace, pod, selector)
    if not targets:
        click.echo(f"No resources found in {namespace} namespace.", err=True)
    lines = tail if tail is not None else (10 if selector else -1)
    parameters: Parameters = {
        "follow": follow,
        "previous": previous,
        "timestamps": timestamps,
        "tailLines": lines if lines >= 0 else None,
        "sinceSeconds": max(1, round(seconds_of("--since", since))) if since else None,
        "sinceTime": since_time,
        "limitBytes": limit_bytes,
    }
    wanted = [
        (target, name)
        for target in targets
        for name in (
            _all_containers(target) if all_containers else [choose_container(target, named or container)]
        )
    ]
    if follow and len(wanted) > max_log_requests:
        raise click.UsageError(
            f"{len(wanted)} logs are to be followed, and at most {max_log_requests} can be; give "
            f"--max-log-requests={len(wanted)}"
        )

    def read(target: BriefPod, name: str) -> Iterator[bytes]:
        path = pod_path(target.namespace, target.name, "log")
        pieces = agent.chunks(path, {**parameters, "container": name})
        return with_prefix(f"[pod/{target.name}/{name}] ", pieces) if prefix else pieces

    out = sys.stdout.buffer
    for piece in merge([partial(read, *each) for each in wanted], at_once=follow):
        out.write(piece)
        out.flush()


def _pods(agent: AgentClient, namespace: str, name: str, selector: str) -> list[BriefPod]:
    if name:
        return [agent.get(pod_path(namespace, split_pod(name)), BriefPod)]
    from ..output.kinds import kind_of

    return kind_of("pods").selected(agent, selector, namespace)


def _all_containers(pod: BriefPod) -> list[str]:
    """Return the names of the pod's containers: init, regular, then ephemeral containers.

    For a pod with a virtual machine there is one empty name, which means the machine.
    """
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    return [container.name for container in containers] or [""]
