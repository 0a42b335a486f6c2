"""``kubeletx cp``: copies files and directories to and from containers."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

import click

from ...connection.client import AgentClient, pod_path
from ...connection.pods import BriefPod
from ...connection.remote import choose_container
from ...options.common import in_namespace
from ...options.completing import container_option
from ...options.go_flags import boolean, command


class Place(NamedTuple):
    """One argument: a path of this machine, or of a pod. `pod` empty: of this machine."""

    path: str
    pod: str = ""
    namespace: str = ""


def parse_place(text: str) -> Place:
    """Parse ``[[NAMESPACE/]POD:]PATH``. A local path with a colon begins with ``/`` or ``.``. Raises UsageError."""
    before, colon, path = text.partition(":")
    if not colon or before.startswith(("/", ".")):
        return Place(text)
    namespace, _, pod = before.rpartition("/")
    if not pod or not path or "/" in namespace:
        raise click.UsageError(f"{text!r} is not [[NAMESPACE/]POD:]PATH")
    return Place(path, pod, namespace)


@command(short_help="Copy files to and from containers.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@container_option()
@boolean("--no-preserve", help="Do not keep owner and permissions in the container.")
@in_namespace
def cp(
    agent: AgentClient, source: str, target: str, container: str, no_preserve: bool, namespace: str
) -> None:
    """Copy a file or directory: 'cp POD:/PATH FILE' or 'cp FILE POD:/PATH'. The container needs tar.

    Links and devices of a container are not copied.
    """
    from ...connection.copying import ContainerFiles

    places = parse_place(source), parse_place(target)
    remote = [place for place in places if place.pod]
    if len(remote) != 1:
        which = "a local" if remote else "a remote"
        raise click.UsageError(
            f"one of SOURCE and TARGET must be {which} path; write POD:PATH for a remote one"
        )
    where = remote[0].namespace or namespace
    pod = agent.get(pod_path(where, remote[0].pod), BriefPod)
    files = ContainerFiles(agent, where, pod.name, choose_container(pod, container))
    if places[0].pod:
        files.download(places[0].path, _below(Path(places[1].path), places[0].path))
        return
    local, inside = Path(places[0].path), places[1].path
    if not local.exists():
        raise click.UsageError(f"{local} does not exist in this machine")
    if inside.endswith("/") or files.is_directory(inside):
        own_name = local.name if local.name not in ("", "..") else local.resolve().name
        inside = f"{inside.rstrip('/')}/{own_name}"
    files.upload(local, inside, preserve=not no_preserve)


def _below(target: Path, source: str) -> Path:
    return target / PurePosixPath(source).name if target.is_dir() else target
